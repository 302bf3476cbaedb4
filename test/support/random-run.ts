import type { TurnStart } from '../../src/core/history.ts';
import type { ApprovalPolicy } from '../../src/core/records/calls.ts';
import type { InputItem } from '../../src/core/records/input.ts';
import type { Approval, PendingCall } from '../../src/core/records/pending.ts';
import type { SubAgent } from '../../src/core/records/threads.ts';
import { mulberry32 } from './lossy-bus.ts';
import { turnStart } from './random-turn.ts';

/** The decisions of a random turn. */
export class Choices {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = mulberry32(seed);
  }

  /** A number below `count`. */
  below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  /** True once in `count` times. */
  once(count: number): boolean {
    return this.below(count) === 0;
  }

  among<const T>(...all: [T, ...T[]]): T {
    return all[this.below(all.length)] ?? all[0];
  }
}

export const EDITED = { arguments: '{"e":1}', hash: 'e' };
export const ELICITATION = { question: '{}', state: { blob: 'b' } };
export const POLICIES: [ApprovalPolicy | undefined, ...ApprovalPolicy[]] = [
  undefined,
  { quorum: 2, onExpiry: 'deny', expiresInSeconds: 100 },
  { quorum: 1, id: 'p', onExpiry: 'allow', expiresInSeconds: 50 },
  {
    quorum: 1,
    onExpiry: 'end',
    expiresInSeconds: 200,
    escalate: { afterSeconds: 20, to: { subjects: ['bob'], roles: [] } },
  },
  { quorum: 1, excludeRequester: true, onExpiry: 'deny' },
];

export function agentOf(choices: Choices, threadId: string, parent: SubAgent['parent'], depth: number): SubAgent {
  const hasServers = choices.once(2);
  const name = choices.once(2) && { agent: 'helper' };
  return { threadId, parent, title: 't', depth, specHash: 'a', hasServers, ...name, iterations: 5 };
}

/** The start of a turn, which may resume calls of an earlier one. */
export function randomStart(choices: Choices): TurnStart {
  const limits = {
    iterations: choices.among(3, 6, 100),
    subAgents: choices.among(1, 2, 5),
    ...(choices.once(3) && { answersAtIterations: true as const }),
    ...(choices.once(3) && { actionSeconds: 300 }),
  };
  return turnStart({
    ...(choices.once(2) && { pause: 'wait' }),
    hasServers: choices.once(2),
    ...(choices.once(2) && { onUnknown: 'ask' }),
    ...(choices.once(4) && { failsWithTools: true }),
    ...(choices.once(4) && { callsInSequence: true }),
    limits: { ...turnStart().limits, ...limits },
    ...(choices.once(3) && resumed(choices)),
  });
}

const ANSWERED = { answered: { elicitation: ELICITATION, content: 'z' } };

/** The open calls of an earlier turn, and the input that answers them. */
function resumed(choices: Choices): Pick<TurnStart, 'resumes' | 'input'> {
  const parent = { threadId: 'main', toolCallId: 'call_p' };
  const agents = choices.once(2) ? [{ ...agentOf(choices, 'thr_9', parent, 1), steps: choices.below(2) }] : [];
  const pending: PendingCall[] = [];
  const input: InputItem[] = [];
  for (const threadId of ['main', ...agents.map((agent) => agent.threadId)]) {
    for (let index = 0, count = 1 + choices.below(3); index < count; index++) {
      const key = { threadId, toolCallId: `r_${index}` };
      const order = choices.once(2) && { order: { server: 's' } };
      const run = { effect: choices.among('retry', 'once'), callHash: 'h', ...order };
      const place = { ...key, source: { turnId: 'turn_0', messageId: 'm', stamp: 's', index, run } };
      const kind = choices.among('approval', 'elicitation', 'order', 'answered', 'sign_in', 'unknown');
      const approval = choices.among<Approval>(
        { status: 'allow' },
        { status: 'deny' },
        { status: 'allow', ...(kind === 'approval' && { edited: EDITED }) },
      );
      const approves: InputItem = { type: 'user.tool_approval', ...key, approval };
      if (kind === 'approval') pending.push({ ...place, needs: kind });
      else if (kind === 'elicitation') pending.push({ ...place, needs: 'response', elicitation: ELICITATION });
      else if (kind === 'unknown') pending.push({ ...place, needs: 'response', unknownOutcome: 'Unknown.' });
      else if (kind === 'sign_in') pending.push({ ...place, needs: kind, signInId: 'sig_0' });
      else if (kind === 'order') pending.push({ ...place, needs: kind });
      else pending.push({ ...place, needs: 'order', ...ANSWERED });
      if (kind === 'approval' || kind === 'unknown') input.push(approves);
      if (kind === 'elicitation') input.push({ type: 'user.tool_response', ...key, content: 'x' });
    }
  }
  return { resumes: { pending, ...(agents.length > 0 && { threads: agents }) }, input };
}
