import { attemptsOf, type BeginFacts, type EndedActivity } from './attempts.ts';
import type { HistoryEvent, ScheduledActivity } from './history.ts';
import { callKey } from './tool-records.ts';
import type { LogEntry, LogRecord } from './records/log.ts';

interface RunningActivity {
  activity: ScheduledActivity;
  activityId?: string;
  scheduledAt: string;
  begun?: BeginFacts;
}

/** An activity that has not ended, by its name in Temporal's descriptions. */
export type OpenActivity = Pick<EndedActivity, 'name' | 'threadId' | 'toolCallId' | 'messageId' | 'scheduledAt'> & {
  activityId: string | undefined;
};

/**
 * Facts of a turn's activities that only its history contains: when they were scheduled, begun and ended, by which
 * workers, and in which attempts. They go into the log with the record that an activity has made or, without one, with
 * the next record of its run. A part of `Turn`, on which nothing else of it depends: the workflow does not have it.
 */
export class TurnFacts {
  readonly #running = new Map<number, RunningActivity>();
  /** The activities that have ended since the last record. */
  #ended: EndedActivity[] = [];

  /** The activities that have not ended. */
  get open(): OpenActivity[] {
    return [...this.#running.values()].map(({ activityId, ...running }) => ({ activityId, ...identityOf(running) }));
  }

  /** Adds the facts of an event of the history to the entries that follow from the event. */
  addTo(entries: LogEntry[], event: HistoryEvent): LogEntry[] {
    const ended = this.#feed(event);
    const [first] = entries;
    if (!first || this.#ended.length === 0) return entries;
    const activities = this.#ended.splice(0);
    const isLast = event.type === 'closed';
    const own = isLast ? entries.at(-1) : ended && entries.find(({ record }) => isOf(record, ended));
    const carrier = own ?? first;
    return entries.map((entry) => (entry === carrier ? { ...entry, record: { ...entry.record, activities } } : entry));
  }

  /** Returns the activity that has ended with the event. */
  #feed(event: HistoryEvent): EndedActivity | undefined {
    switch (event.type) {
      case 'started':
        // Readers that begin with this run do not have the activities of the one before.
        this.#running.clear();
        this.#ended = [];
        return undefined;
      case 'scheduled': {
        const { activity, activityId, at: scheduledAt } = event;
        this.#running.set(event.eventId, { activity, ...(activityId && { activityId }), scheduledAt });
        return undefined;
      }
      case 'begun': {
        const running = this.#running.get(event.scheduledEventId);
        if (running) running.begun = event.facts;
        return undefined;
      }
      case 'ended':
        return this.#end(event);
      case 'closed':
        for (const running of this.#running.values()) this.#ended.push({ ...identityOf(running), attempts: [] });
        this.#running.clear();
        return undefined;
      default:
        return undefined;
    }
  }

  #end({ scheduledEventId, at, end, facts }: Extract<HistoryEvent, { type: 'ended' }>): EndedActivity | undefined {
    const running = this.#running.get(scheduledEventId);
    this.#running.delete(scheduledEventId);
    if (!running || !facts) return undefined;
    const status = end.how === 'completed' ? end.outcome?.status : undefined;
    const ended: EndedActivity = {
      ...identityOf(running),
      attempts: attemptsOf(running.begun, facts, at),
      ...(status !== undefined && { status }),
    };
    this.#ended.push(ended);
    return ended;
  }
}

function identityOf({ activity, scheduledAt }: RunningActivity): Omit<EndedActivity, 'attempts' | 'status'> {
  const { name, input } = activity;
  const { threadId } = input;
  if (name === 'callModel') return { name, threadId, messageId: input.messageId, scheduledAt };
  if (name === 'callTool') return { name, threadId, toolCallId: input.toolCallId, scheduledAt };
  return { name, threadId, scheduledAt };
}

/** Whether a record is what an activity was scheduled for. */
function isOf(record: LogRecord, { name, threadId, toolCallId = '' }: EndedActivity): boolean {
  if (name === 'callModel') return record.kind === 'model.message' && record.threadId === threadId;
  return (
    name === 'callTool' && record.kind === 'tool.response' && callKey(record) === callKey({ threadId, toolCallId })
  );
}
