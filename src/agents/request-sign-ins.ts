import type { ToolScope } from '../core/history.ts';
import type { ServerSignIn, UnsequencedRecord } from '../core/records.ts';
import { requestedSignIns, type RequestedSignIn } from '../core/sign-ins.ts';
import { McpServerError } from '../mcp/errors.ts';
import { failureReason } from '../mcp/failure-reason.ts';
import type { SignInNeed } from '../mcp/sign-in-required.ts';
import type { SignIns } from '../mcp/sign-ins.ts';
import type { Toolset } from '../tools/toolset.ts';

/** What a turn needs to request sign-ins of its session's owner. */
export interface SignInRequests {
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  scope: ToolScope;
  turnId: string;
}

export const NOT_SIGNED_IN = 'the user has not signed in';
export const DECLINED = 'the user has declined to sign in';

/**
 * Requests the sign-ins that a toolset lacks, unless the user has declined them or continues without them. Returns the
 * requested ones, and why the other servers are unavailable.
 */
export async function requestSignIns(
  { unavailable }: Pick<Toolset, 'unavailable'>,
  records: UnsequencedRecord[],
  requests: SignInRequests,
): Promise<{ signIns: ServerSignIn[]; unavailable: Toolset['unavailable'] }> {
  const earlier = requestedSignIns(records);
  const signIns: ServerSignIn[] = [];
  const remaining: Toolset['unavailable'] = [];
  for (const { server, reason, signIn } of unavailable) {
    const result = signIn ? await requestSignIn(signIn, earlier.get(signIn.endpoint.id), requests) : { reason };
    if ('reason' in result) remaining.push({ server, reason: result.reason });
    else signIns.push(result);
  }
  return { signIns, unavailable: remaining };
}

/** Requests one sign-in; `earlier` is the one that was requested before. Otherwise says why not. */
export async function requestSignIn(
  need: SignInNeed,
  earlier: RequestedSignIn | undefined,
  { signIns, scope, turnId }: SignInRequests,
): Promise<ServerSignIn | { reason: string }> {
  if (earlier && !earlier.mayRepeat) return { reason: NOT_SIGNED_IN };
  if (earlier?.isRecent && (await signIns.isDeclined(earlier.id))) return { reason: DECLINED };
  try {
    return await signIns.request(need, scope, turnId);
  } catch (error) {
    if (!(error instanceof McpServerError)) throw error;
    return { reason: `it ${failureReason(error)}` };
  }
}
