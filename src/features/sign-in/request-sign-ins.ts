import type { ModelCallPart, RequestedSignIns } from '../../agents/model-call-part.ts';
import type { ToolScope } from '../../core/history.ts';
import type { ServerSignIn } from '../../core/records/servers.ts';
import { requestedSignIns, type RequestedSignIn } from '../../core/sign-ins.ts';
import { McpServerError } from '../../mcp/errors.ts';
import { failureReason } from '../../mcp/failure-reason.ts';
import type { SignInNeed } from '../../mcp/sign-in-required.ts';
import type { SignIns } from './sign-ins.ts';

/** The services and scope with which a turn requests sign-ins from its session's owner. */
interface SignInRequests {
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  scope: ToolScope;
  turnId: string;
}

const NOT_SIGNED_IN = 'the user has not signed in';
const DECLINED = 'the user has declined to sign in';

/** Requests the missing sign-ins of a toolset, unless the user has declined them or continues without them. */
export function signInPart(signIns: SignInRequests['signIns']): ModelCallPart {
  return {
    signIns: async ({ unavailable }, { call, records }) => {
      const earlier = requestedSignIns(records);
      const requested: RequestedSignIns = { signIns: [], unavailable: [] };
      for (const { server, reason, signIn } of unavailable) {
        const requests = { signIns, scope: call, turnId: call.turnId };
        const result = signIn ? await requestSignIn(signIn, earlier.get(signIn.endpoint.id), requests) : { reason };
        if ('reason' in result) requested.unavailable.push({ server, reason: result.reason });
        else requested.signIns.push(result);
      }
      return requested;
    },
  };
}

/** Requests one sign-in, or returns the reason why not. `earlier`: the sign-in that was requested before. */
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
