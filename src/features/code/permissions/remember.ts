import { mayOnSession, isOwn } from '../../../auth/rights.ts';
import type { BlobStore } from '../../../blobs/blob-store.ts';
import { restore } from '../../../blobs/offload.ts';
import type { SessionRow } from '../../../catalog/schema.ts';
import { namesDeciders } from '../../../core/input-rules.ts';
import type { PendingCall } from '../../../core/records/pending.ts';
import type { SubAgent } from '../../../core/records/threads.ts';
import type { Caller, Subject } from '../../../core/subject.ts';
import { callKey, callName, type CallKey } from '../../../core/tool-records.ts';
import { EngineError } from '../../../engine/errors.ts';
import { MAX_RULES, ruleProblem, type PermissionRule, type RulePattern } from '../../../spec/permission-rule.ts';
import { pendingAction } from './call-action.ts';
import { agentOf } from './code-rules.ts';
import { matchesRule } from './decide-action.ts';
import type { PermissionRules, RuleTarget, RuleScope } from './rule-rows.ts';
import { suggestedRule } from './suggested-rule.ts';

/** A rule that a person requests with a decision. */
export interface RuleToRemember extends CallKey {
  effect: 'allow' | 'deny';
  scope: RuleScope;
  /** Undefined: the suggested rule. */
  rule: RulePattern | undefined;
  expiresInSeconds: number | undefined;
  /** Its path in the request. */
  param: string;
}

/** The pending calls of a session, and the caller who decides. */
interface Deciding {
  session: SessionRow;
  caller: Caller;
  pending: readonly PendingCall[];
  threads: readonly Pick<SubAgent, 'threadId' | 'agent' | 'depth'>[];
  blobs: BlobStore;
  /** Milliseconds since 1970. */
  now: number;
}

interface NewRule {
  place: RuleTarget;
  rule: PermissionRule;
}

/**
 * The rules that are requested with decisions. Skips rules for calls that do not wait: such an answer is refused, or
 * repeats an earlier one.
 * @throws EngineError `invalid_rule`, `remember_not_allowed` or `forbidden`
 */
export async function rulesToAdd(given: readonly RuleToRemember[], deciding: Deciding): Promise<NewRule[]> {
  const rules: NewRule[] = [];
  for (const one of given) {
    const call = deciding.pending.find((pending) => callKey(pending) === callKey(one));
    if (call) rules.push(await ruleToAdd(one, call, deciding));
  }
  return rules;
}

async function ruleToAdd(given: RuleToRemember, call: PendingCall, deciding: Deciding): Promise<NewRule> {
  const { param } = given;
  const { blobs, session, now } = deciding;
  const { action, policy } = call;
  if (!action || namesDeciders(policy)) {
    const reason = action ? 'its policy says who decides each call' : 'its agent does not act in code';
    throw new EngineError('remember_not_allowed', `no rule is made of ${callName(call)}: ${reason}`, { param });
  }
  const place = placeOf(given, call, deciding);
  const whole = await restore(action, { blobs, sessionId: session.id });
  const decided = pendingAction({ action: whole });
  const pattern = given.rule ?? (decided && suggestedRule(decided));
  const invalid = (message: string) => new EngineError('invalid_rule', message, { param });
  if (!decided || !pattern) throw invalid(`no rule is suggested for ${callName(call)}: name one`);
  const problem = ruleProblem(pattern);
  if (problem !== undefined) throw invalid(problem);
  const { effect, expiresInSeconds: seconds } = given;
  if (!matchesRule({ ...pattern, effect }, decided)) throw invalid(`the rule does not match ${callName(call)}`);
  const expiry = seconds !== undefined && { expires_at: new Date(now + seconds * 1000).toISOString() };
  return { place, rule: { ...pattern, effect, ...expiry } };
}

/** @throws EngineError */
function placeOf({ scope, param }: RuleToRemember, call: PendingCall, deciding: Deciding): RuleTarget {
  const { session, caller, threads } = deciding;
  const { id: sessionId, subject_id: subjectId } = session;
  const mayDecide = mayOnSession(caller, session, 'decide') && (scope !== 'always' || isOwn(caller, session));
  if (!mayDecide) {
    const who = scope === 'always' ? 'its owner' : 'those who may decide in it';
    throw new EngineError('forbidden', `a rule with the scope ${scope} is made by ${who}`, { param });
  }
  if (scope === 'session') return { scope, sessionId };
  const parent = call.action?.parent;
  if (scope === 'cell') {
    if (parent) return { scope, sessionId, threadId: parent.threadId, toolCallId: parent.toolCallId };
    throw new EngineError('invalid_rule', 'only calls that code makes have the scope cell', { param });
  }
  const by = (parent ?? call).threadId;
  const agentName = agentOf(
    session,
    threads.find(({ threadId }) => threadId === by),
  );
  if (agentName !== undefined) return { scope, subjectId, agentName };
  throw new EngineError('invalid_rule', 'only registered agents have rules with the scope always', { param });
}

/** A rule that was newly added. */
export interface AddedRule {
  place: RuleTarget;
  id: string;
}

/** Adds all of the rules, or none. Returns the new ones. @throws EngineError `invalid_rule` if there are too many */
export async function addRules(
  store: PermissionRules,
  rules: readonly NewRule[],
  { by, now }: { by: Subject; now: number },
): Promise<AddedRule[]> {
  const added: AddedRule[] = [];
  for (const { place, rule } of rules) {
    const one = await store.add(place, { rule, by }, now);
    if (!one) {
      await removeRules(store, added);
      throw tooManyRules();
    }
    if (one.isNew) added.push({ place, id: one.stored.id });
  }
  return added;
}

export async function removeRules(store: PermissionRules, rules: readonly AddedRule[]): Promise<void> {
  for (const { place, id } of rules) await store.delete(place, id);
}

export function tooManyRules(): EngineError {
  return new EngineError('invalid_rule', `there are ${MAX_RULES} rules already: delete some`);
}
