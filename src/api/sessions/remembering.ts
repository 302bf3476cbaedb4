import type { SessionRow } from '../../catalog/schema.ts';
import type { PendingCall } from '../../core/records/pending.ts';
import type { SubAgent } from '../../core/records/threads.ts';
import type { Caller } from '../../core/subject.ts';
import { isRejected } from '../../engine/errors.ts';
import {
  addRules,
  removeRules,
  rulesToAdd,
  type AddedRule,
  type RuleToRemember,
} from '../../features/code/permissions/remember.ts';
import type { ApiContext } from '../http/context.ts';

interface Remembered {
  session: SessionRow;
  caller: Caller;
  rules: readonly RuleToRemember[];
  /** The calls of the session that wait, and the sub-agents of their turn. */
  waiting: () => Promise<{ pending: PendingCall[]; threads?: SubAgent[] }>;
}

/**
 * Sends decisions, with the rules beside them. `decide` calls `add` before it sends the decisions, since the rules
 * apply to the calls that follow; if the decisions are rejected, the new rules are removed.
 * @throws EngineError, and what `decide` throws
 */
export async function remembering<T>(
  { catalog, blobs }: Pick<ApiContext, 'catalog' | 'blobs'>,
  { session, caller, rules, waiting }: Remembered,
  decide: (add: () => Promise<void>) => Promise<T>,
): Promise<T> {
  let added: AddedRule[] = [];
  const add = async (): Promise<void> => {
    if (rules.length === 0) return;
    const now = Date.now();
    const { pending, threads = [] } = await waiting();
    const checked = await rulesToAdd(rules, { session, caller, pending, threads, blobs, now });
    added = await addRules(catalog.permissionRules, checked, { by: caller.subject, now });
  };
  try {
    return await decide(add);
  } catch (error) {
    if (isRejected(error)) await removeRules(catalog.permissionRules, added);
    throw error;
  }
}
