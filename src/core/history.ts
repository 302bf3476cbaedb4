import type { Attempt, BeginFacts, EndFacts } from './attempts.ts';
import type { Budget, BudgetLeft, BudgetReport } from './budget.ts';
import type { CallSource } from './records/calls.ts';
import type { ConversationRef, InputItem } from './records/input.ts';
import type { NewRecord } from './records/log.ts';
import type { MessagePlan, ModelMessage } from './records/message.ts';
import type { EditedArguments, PendingCall, PendingElicitation, Waiting } from './records/pending.ts';
import type { AuthRequired } from './records/servers.ts';
import type { ThreadEnding } from './records/threads.ts';
import type { ResponseLimit, CancelReason, TurnError } from './records/turn.ts';
import type { Subject } from './subject.ts';
import type { TurnActionsState } from './turn-actions.ts';
import type { CallKey } from './tool-records.ts';
import type { CommandEvent } from './turn-command.ts';
import type { QueuePosition } from './turn-queue.ts';
import type { TurnTotals } from './turn-totals.ts';

/**
 * The input of a `Turn`: the events of a turn workflow's history, decoded and without Temporal's own types
 * (`src/temporal/history.ts` makes them). The log does not depend on any other event of a history.
 */
export type HistoryEvent =
  /** `runId` is that of the run before an operator's reset, if it results from one. */
  | { type: 'started'; at: string; start: TurnStart; runId?: string }
  /** `activityId` is the name of the activity in Temporal's descriptions. */
  | { type: 'scheduled'; eventId: number; activityId?: string; at: string; activity: ScheduledActivity }
  /** The last attempt of an activity, recorded with its end if the activity may be retried. */
  | { type: 'begun'; scheduledEventId: number; facts: BeginFacts }
  | { type: 'ended'; scheduledEventId: number; at: string; end: ActivityResult; facts?: EndFacts }
  | { type: 'commanded'; command: CommandEvent }
  | { type: 'taskStarted'; at: string }
  /** The task that started last was completed; its commands follow. */
  | { type: 'taskCompleted' }
  | { type: 'continued'; at: string; runId: string }
  | { type: 'closed'; at: string; close: WorkflowClose };

/**
 * The activities whose results append records to the log. The decoder and `Turn` derive from this list: a name
 * without an input, without its records at a failure, or without an activity is a type error.
 */
export const APPENDING_ACTIVITIES = ['callModel', 'callTool', 'connectTools', 'openSandbox', 'resumeCell'] as const;

export type AppendingActivity = (typeof APPENDING_ACTIVITIES)[number];

export interface AppendingInputs {
  callModel: CallModelInput;
  callTool: CallToolInput;
  connectTools: ThreadInput;
  /** The sandbox of the session is opened, for the calls of a thread. */
  openSandbox: ThreadInput;
  resumeCell: ResumeCellInput;
}

/** An appending activity, with the parts of its input that `Turn` needs if the activity fails. */
export type ScheduledActivity = {
  [Name in AppendingActivity]: { name: Name; input: ScheduledInput<Name> };
}[AppendingActivity];

export type ScheduledInput<Name extends AppendingActivity> = Omit<AppendingInputs[Name], keyof ScheduledBy | 'owner'>;

export type ActivityResult =
  | ({ how: 'completed'; records: NewRecord[]; stamp?: string } & Pick<
      CallToolResult,
      'elicitation' | 'unknownOutcome' | 'isReplaced' | 'isDelegated'
    > &
      Partial<Pick<CallModelResult, 'budget' | 'outcome' | 'output'>> &
      Partial<Pick<OpenSandboxResult, 'host'>> &
      Partial<Pick<ResumeCellResult, 'lost'>>)
  | { how: 'failed'; message: string }
  /** `isUnstarted`: no worker has polled its task queue. */
  | { how: 'timed_out'; isUnstarted?: true }
  | { how: 'cancelled'; started: boolean };

export type WorkflowClose =
  | { how: 'completed'; result: TurnResult }
  | { how: 'failed'; message: string }
  | { how: 'terminated'; reason: CancelReason }
  | { how: 'timed_out' };

/** The owner of a session, who is not the creator of every turn in it. */
export interface SessionOwner {
  subjectId: string;
  /** The roles of the author of a draft's agent, which decide what it may use; null for an agent of the registry. */
  draftRoles: readonly string[] | null;
}

/** The session and the subject that use an MCP server: its connections are not shared between scopes. */
export interface ToolScope {
  sessionId: string;
  owner: SessionOwner;
}

/**
 * The current version of the rules by which a turn's history becomes its log. The workflow and every reader of the
 * history must follow the same ones, and readers see no patches: see "Changing workflow code" in CONTRIBUTING.md.
 */
export const TURN_RULES = 4;

/** A turn of older rules is not continued: see `src/server/old-turns.ts`. Its log can be read. */
export const OLDEST_RULES = 4;

/** A turn as it is requested of its session. The agent's spec is a reference. */
export interface TurnToCreate {
  turnId: string;
  createdAt: string;
  createdBy: Subject;
  owner: SessionOwner;
  input: InputItem[];
  conversation?: ConversationRef;
  /** The turn is a run of the run API. */
  isRun?: true;
  /** The title of the session, if it has none and this is its first turn. */
  title: string | null;
  /** The registered agents that may be started as sub-agents: the hashes of their specs by their names. */
  agents?: Record<string, string>;
  /** SHA-256 of the agent spec that the turn runs with; the catalog keeps the spec. */
  specHash: string;
  hasServers: boolean;
  /** The turn waits for answers to its tool calls; otherwise it ends when it needs some. */
  pause?: 'wait';
  /** A person is asked about at-most-once calls whose outcome is unknown; otherwise the model sees that outcome. */
  onUnknown?: 'ask';
  /** The turn ends with an error if a call has no result of its tool: see `NoResult`. */
  failsWithTools?: true;
  /** The turn ends, without an error, once a person has denied a call of the root agent. */
  endsOnDenial?: true;
  /** The calls of a message of the root thread run one after the other. */
  callsInSequence?: true;
  limits: TurnBounds;
  budget?: Budget;
}

/** The input of a turn workflow: the turn with what its session adds. Previous turns are references. */
export interface TurnStart extends TurnToCreate, ToolScope {
  /** The `TURN_RULES` of the version that has started the turn. Absent before there were any. */
  rules?: number;
  /** The turn's position in its session, from 1. */
  sequence: number;
  previousTurnId: string | null;
  /**
   * The work that waited at the end of the previous turn, if any: this turn's input resolves each call, and this turn
   * continues the sub-agents.
   */
  resumes?: Waiting;
  /** The turn waits in the queue of its session: `sequence` and `previousTurnId` are not known yet. */
  queued?: QueuePosition & {
    /** Its position in the queue at its creation, from 1. */
    position: number;
  };
  /** Set for a turn that has waited in the queue. */
  begun?: TurnBegun;
  /** The run that an operator has reset, which has the log. Set on the runs that follow the run after the reset. */
  resetRunId?: string;
  /** Set on every run but the first: the state in which the previous run stopped. */
  carry?: TurnContinuation;
}

export interface TurnBegun {
  at: string;
  /** The Temporal run in which it has waited, which contains no part of its log. */
  queuedRunId: string;
  /** It was cancelled at the same moment. */
  cancelled?: CancelReason;
}

/** The fields from which the first record of a turn is built. */
export type TurnHeader = Pick<TurnStart, 'sessionId' | 'previousTurnId' | 'queued' | 'begun'> &
  Pick<TurnToCreate, 'turnId' | 'createdAt' | 'createdBy' | 'input' | 'conversation' | 'isRun' | 'specHash'>;

export interface TurnBounds {
  /** Model calls. */
  iterations: number;
  /** The root agent answers with the last of these calls; otherwise the turn fails after it. */
  answersAtIterations?: true;
  /** The turn ends without error and without answer after this many model calls of the root agent and their tools. */
  rounds?: number;
  /** How long the turn works before it is forced to answer. */
  answerAfterSeconds?: number;
  /** How long one pause for answers may last; then the turn fails. */
  actionSeconds?: number;
  /** The time-out of the turn. */
  seconds: number;
  /** The time-out of one tool call. */
  toolSeconds: number;
  /** The heartbeat time-out of a call that must not run again, after which its worker is considered dead. */
  toolHeartbeatSeconds: number;
  /** How many sub-agents run at once. */
  subAgents: number;
  /** How many sub-agents a root agent that acts in code may have open at once: further calls that start one wait. */
  tasks?: number;
}

/** What is open in a turn when its run continues as new, and what it has used. */
export interface Open extends TurnTotals, TurnActionsState {
  /** The ordinal of the log's last record. */
  ordinal: number;
  /** How many sub-agents, and sessions of other agents, the turn has started. */
  started?: number;
  /** The sign-ins that were requested since the last message of their thread. */
  requestedSignIns?: AuthRequired[];
}

/** What the next run of a turn continues with. */
export interface TurnContinuation extends Open {
  /** The last results, which the input of some thread's next model call lists: see `NextModelCall`. */
  results: StampedResult[];
  /** The run that continued as new as this one. */
  previousRunId: string;
  /** When the turn times out, without the time for which it was paused: milliseconds since 1970. */
  deadline: number;
}

/** A result of an activity, or records that the log got without one: then the stamp is empty. */
export interface StampedResult {
  stamp: string;
  /** How many records precede it. */
  after: number;
}

/** The result of a turn workflow. */
export type TurnResult = ({ status: 'done' } & Waiting) | { status: 'cancelled'; reason: CancelReason } | TurnError;

/** The limits of an activity of a turn that has effects outside of it. */
export interface ScheduledBy {
  /** When the turn times out, in milliseconds since 1970: see `src/engine/turn-deadline.ts`. */
  deadline: number;
  /**
   * The run that schedules the activity or, after an operator's reset, the run that was reset. Such activities of a run
   * that results from a reset, or follows one, are rejected: see `src/temporal/reject-reset-run.ts`.
   */
  runId: string;
}

/** The turn's results since a thread's last model call, for the input of the next one. */
export interface NextModelCall {
  /** The stamps of the results: see `src/engine/conversations.ts`. */
  recent: string[];
  /** The results of kernel hosts, if they are small: the worker need not read them from the history. */
  ofHosts?: HostResult[];
}

/** The result of a kernel host, as the history contains it. */
export interface HostResult {
  stamp: string;
  records: NewRecord[];
}

/** The input of a model call, without what is constant in its turn and thread: see `ModelCall`. */
export interface CallModelInput extends MessagePlan, NextModelCall, ScheduledBy {
  turnId: string;
  /** As in the turn's start: for log lines and for the result, also if the start cannot be read. */
  sessionId: string;
  step: number;
  /** The limit of the turn, or of the sub-agent, allows no further model call of the thread. */
  isLast?: true;
  /** The thread ends with its last message: no model is called. */
  ends?: ThreadEnding;
  /** The thread is to answer with this call: it may call no tools. */
  isForced?: true;
  /** The limit that forces the answer; absent if a user does. */
  limit?: ResponseLimit;
  /**
   * The thread's next model call is forced if it begins at this time or later, in milliseconds since 1970, and the turn
   * is not paused before it. 0: in any case.
   */
  forcedFromMs?: number;
  /** What is left of the turn's budget, if it has one. */
  left?: BudgetLeft;
  /** How long the turn has waited in the queue of its session and was paused so far, if it did. */
  idleMs?: number;
  /** Set for the first model call of a turn, if it is small: the worker need not read it from the history. */
  start?: TurnStart;
}

/** The input of the activities of a thread, except for its model calls. */
export interface ThreadInput extends ToolScope, ScheduledBy {
  turnId: string;
  /** As in the turn's start. */
  isRun?: true;
  threadId: string;
  specHash: string;
}

export interface CallToolInput extends ThreadInput {
  toolCallId: string;
  source: CallSource;
  /** The arguments with which it was approved, if not those that the model wrote. */
  edited?: EditedArguments;
  /** The sign-in that the call has waited for, and whether another one may be requested. */
  signIn?: { id: string; mayRepeat: boolean };
  /** Set if the call continues with the answer to its server's question; the content may be a reference. */
  answered?: NonNullable<PendingCall['answered']>;
  /** The outcome of the call was unknown, and a person has decided to run it again. */
  repeats?: true;
  /** Set if a person is to be asked when the outcome is unknown: the policy by which the call was approved. */
  onUnknown?: Pick<PendingCall, 'policy' | 'requesters'>;
  /**
   * Set if the approval of the call is to be requested again, with this policy, when the state that earlier calls have
   * left at the server is lost.
   */
  onReplaced?: NonNullable<PendingCall['onReplaced']>;
  /** For a cell: when the time of the turn's budget is used up, after which its host begins no call of it. */
  callsUntilMs?: number;
}

/** The cell of a code thread resumes with the results of its calls. */
export interface ResumeCellInput extends ThreadInput {
  /** The call of the cell. */
  cell: CallKey;
  /** How many messages the thread has: a host resumes a cell once after each of them. */
  step: number;
  /** The commands of the last message that the cell may run first: they need no approval, or have it. */
  commands: string[];
  /** It does not resume yet: the host only checks that it still waits, before its calls begin after a decision. */
  isCheck?: true;
  /** The cell ends where it waits. */
  isInterrupted?: true;
  /** How long the turn has waited for people since the last message, in milliseconds; absent if it has not. */
  waitedMs?: number;
  /** As in `CallToolInput`. */
  callsUntilMs?: number;
}

/** Interrupts the cell of a call that runs on the host in this turn. */
export interface InterruptCellInput extends CallKey, ScheduledBy {
  turnId: string;
  /** Set if the turn is held: the cell keeps running, but the host begins no further calls in this piece of it. */
  heldPiece?: number;
}

/** The result of an appending activity. `stamp` is unique for each attempt. */
export interface Appended<R extends NewRecord = NewRecord> {
  records: R[];
  stamp: string;
  /** The facts of the activity's attempts that the history does not contain; absent if there are none. */
  attempts?: Attempt[];
}

/**
 * Without records if the call stays open: it waits for an answer of the user, for a person who reports how it ended or
 * approves it again, or for another agent.
 */
export interface CallToolResult extends Appended {
  /** Another agent works on the call, in a session of its own. */
  isDelegated?: true;
  elicitation?: PendingElicitation;
  /** The known facts about the outcome. */
  unknownOutcome?: string;
  /** The call was not executed: its connection has replaced the one on which earlier calls ran. */
  isReplaced?: true;
}

export interface OpenSandboxResult extends Appended {
  /** The task queue of the kernel host that has the sandbox. */
  host: string;
}

/** Without records if the cell is lost, or only had to be checked. */
export interface ResumeCellResult extends Appended {
  /** Why the cell does not wait any more: its kernel has ended, or its host was lost. */
  lost?: string;
}

export interface CallModelResult extends Appended {
  /** The budget that was reached. */
  budget?: BudgetReport;
  /** The last message of a root agent that ends with it. */
  output?: ModelMessage;
  /**
   * `compacted`: the conversation is shorter, and the model has not been called for the message yet. `budget_reached`:
   * a budget that the turn shares with others had no room for the call. `ended`: see `ends` of the input.
   */
  outcome:
    | { status: 'cancelled' | 'sign_in_required' | 'compacted' | 'budget_reached' | 'ended' }
    /** `mayBeCutOff`: also if the message was cut off at the limit of output tokens, which otherwise ends the turn. */
    | { status: 'answered'; mayBeCutOff?: true }
    | TurnError;
}
