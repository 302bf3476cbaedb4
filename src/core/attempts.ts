import type { AppendingActivity, CallModelResult } from './history.ts';

/**
 * How an attempt of an activity has ended.
 * - `completed`: the activity has its result, which may be an error.
 * - `failed`: the provider, the tool or a store failed.
 * - `lost`: its worker never reported its end: it was killed, or stalled until the attempt timed out.
 * - `taken_over`: its worker stopped, and left it to another one.
 * - `cancelled`: the turn no longer waited for it.
 */
type AttemptOutcome = 'completed' | 'failed' | 'lost' | 'taken_over' | 'cancelled';

/** The names of a turn's activities for clients. */
export const ACTIVITY_KINDS = {
  callModel: 'model_call',
  callTool: 'tool_call',
  connectTools: 'connect_tools',
  openSandbox: 'open_sandbox',
  resumeCell: 'run_code',
} as const satisfies Record<AppendingActivity, string>;

/** What an attempt has called; empty if it has called nothing yet. */
export interface Called {
  /** The provider of the model, by its name on this server. */
  provider?: string;
  /** The model's name at that provider. */
  model?: string;
  /** Host and port of the provider; absent for one at its own address. */
  address?: string;
  /** The MCP server of the tool, by its name in the agent. */
  server?: string;
  tool?: string;
}

/** One attempt of an activity. Times are ISO-8601, UTC, milliseconds. */
export interface Attempt extends Called {
  /** From 1. */
  number: number;
  startedAt?: string;
  /** For a lost attempt: when the next one was scheduled instead. */
  endedAt?: string;
  /** Temporal's identity of the worker. */
  worker?: string;
  /** Absent while it runs. */
  outcome?: AttemptOutcome;
  /** The class of its failure. */
  failure?: string;
  /** The failure in words, without secrets, cut to `MAX_REASON_BYTES`. */
  reason?: string;
}

/** An activity of a turn that has ended, with its attempts. Only a history contains these facts. */
export interface EndedActivity {
  name: AppendingActivity;
  threadId: string;
  /** The call that `callTool` runs. */
  toolCallId?: string;
  /** The message that `callModel` is to return. */
  messageId?: string;
  scheduledAt: string;
  /** In their order, the first one and the last ones if there were too many; none if no worker has begun it. */
  attempts: Attempt[];
  /** The status of a model call that has a result: see `outcome` of `CallModelResult`. */
  status?: CallModelResult['outcome']['status'];
}

/** Facts of an activity's end that only a history contains. They become part of log records, and decide nothing. */
export interface EndFacts {
  /** The attempts that the activity has reported, the last one without its times. */
  reported?: Attempt[];
  outcome: AttemptOutcome;
  failure?: string;
}

/** Facts of the start of an activity's last attempt that only a history contains. */
export interface BeginFacts {
  /** From 1. */
  number: number;
  at: string;
  worker?: string;
  /** How the attempt before has failed, if there was one; `isLost`: by a time-out. */
  before?: { isLost: boolean; failure?: string };
}

/** How many attempts of an activity are kept: the first one, and the last ones. With long names they take 7 KB. */
const MAX_ATTEMPTS = 10;

/** The longest `reason` of an attempt, in bytes inside a JSON string. */
export const MAX_REASON_BYTES = 160;

/** The attempts of an activity that are kept. */
export function boundedAttempts(attempts: Attempt[]): Attempt[] {
  const [first] = attempts;
  return first && attempts.length > MAX_ATTEMPTS ? [first, ...attempts.slice(1 - MAX_ATTEMPTS)] : attempts;
}

/** The known attempts of a running activity, the last of which has begun or is about to. */
export function attemptsSoFar(
  { number, at: startedAt, worker, before }: Omit<BeginFacts, 'at'> & { at?: string },
  reported: readonly Attempt[],
): Attempt[] {
  const earlier = reported.filter((attempt) => attempt.number < number);
  const isUnreported = before !== undefined && earlier.at(-1)?.number !== number - 1;
  const own = reported.find((attempt) => attempt.number === number);
  return boundedAttempts([
    ...earlier.map((attempt) => ({ outcome: 'lost' as const, ...attempt })),
    ...(isUnreported ? [unreported(number - 1, before)] : []),
    { ...own, number, ...(startedAt !== undefined && { startedAt }), ...(worker !== undefined && { worker }) },
  ]);
}

/** The known attempts of an activity that ended at `at`. */
export function attemptsOf(begun: BeginFacts | undefined, end: EndFacts, at: string): Attempt[] {
  const { reported = [], outcome, failure } = end;
  if (!begun) return reported;
  return attemptsSoFar(begun, reported).map((attempt, i, all): Attempt => {
    return i === all.length - 1
      ? { ...(failure !== undefined && { failure }), ...attempt, endedAt: at, outcome }
      : attempt;
  });
}

/** An attempt at a call of a turn has failed, and is repeated. For live readers: the log has it only with the call. */
export interface RetryNotice extends Pick<EndedActivity, 'threadId' | 'toolCallId' | 'messageId'> {
  /** The event's id. */
  id: string;
  /** ISO-8601. */
  at: string;
  turnId: string;
  attempt: Attempt;
}

/** Why an activity is repeated. */
export interface Retrying {
  /** When its first attempt ended, if that is known. */
  since: string;
  /** The provider of the model, or the MCP server, that the last attempt has called. */
  provider?: string;
  reason: string;
}

/** Undefined for an activity that was not repeated. */
export function retryingOf({
  scheduledAt,
  attempts,
}: Pick<EndedActivity, 'scheduledAt' | 'attempts'>): Retrying | undefined {
  const [first] = attempts;
  const failed = attempts.at(-2);
  if (!first || !failed) return undefined;
  const provider = failed.provider ?? failed.server;
  return {
    since: first.endedAt ?? first.startedAt ?? scheduledAt,
    ...(provider !== undefined && { provider }),
    reason: reasonOf(failed),
  };
}

/** The end of an attempt in words. */
function reasonOf({ outcome, reason, failure }: Attempt): string {
  if (outcome === 'lost') return 'its worker was lost';
  if (outcome === 'taken_over') return 'its worker stopped';
  return reason ?? failure ?? 'it failed';
}

function unreported(number: number, { isLost, failure }: NonNullable<BeginFacts['before']>): Attempt {
  return isLost
    ? { number, outcome: 'lost' }
    : { number, outcome: 'failed', ...(failure !== undefined && { failure }) };
}
