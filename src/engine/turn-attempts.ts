import type { Client } from '@temporalio/client';
import type { KernelCatalog } from '../catalog/catalog.ts';
import { retryingOf, type Retrying } from '../core/attempts.ts';
import { APPENDING_ACTIVITIES } from '../core/history.ts';
import { turnWorkflowId } from '../core/temporal-names.ts';
import { Timeline, type PendingActivity, type Span } from '../core/timeline.ts';
import { describeExecution, type DescribedActivity } from '../temporal/describe-workflow.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

interface Sources {
  catalog: Pick<KernelCatalog, 'turns'>;
  client: Client;
  logs: TurnLogReader;
}

/** Why a running turn repeats a call, if it does: of several calls, for the one that has been repeated for longest. */
export async function retryingTurn(client: Client, turnId: string): Promise<Retrying | undefined> {
  const retrying = (await describedActivities(client, turnId)).flatMap(
    ({ scheduledAt = '', attempts }) => retryingOf({ scheduledAt, attempts }) ?? [],
  );
  return retrying.toSorted((a, b) => (a.since < b.since ? -1 : 1))[0];
}

/**
 * What a turn has spent its time on: according to its log and, while it runs, to Temporal's description of it.
 * @throws TurnNotFound
 */
export async function turnTimeline({ catalog, client, logs }: Sources, turnId: string): Promise<Span[]> {
  // In this order, so that an activity that ends in between is in the log, and is recognized there.
  const row = await catalog.turns.get(turnId);
  const described = row?.archived ? [] : await describedActivities(client, turnId);
  const pending = described.length > 0 ? await pendingActivities(described, { logs, turnId }) : [];
  const timeline = new Timeline();
  // The stored entries are enough: a timeline needs no text that may be in the blob store.
  for await (const { entries } of logs.readStored(turnId)) for (const { record } of entries) timeline.add(record);
  return timeline.ordered(pending);
}

/** The running activities of a turn; none if it has ended. */
async function describedActivities(client: Client, turnId: string): Promise<DescribedActivity[]> {
  const { pendingActivities = [] } = (await describeExecution(client, turnWorkflowId(turnId))) ?? {};
  return pendingActivities.filter(({ name }) => APPENDING_ACTIVITIES.some((one) => one === name));
}

/** The running calls, with their fields from the history. */
async function pendingActivities(
  described: DescribedActivity[],
  { logs, turnId }: { logs: TurnLogReader; turnId: string },
): Promise<PendingActivity[]> {
  const { openActivities } = await logs.currentRun(turnId);
  return openActivities.flatMap(({ activityId, ...activity }) => {
    const attempts = described.find((one) => one.activityId === activityId)?.attempts;
    return attempts ? [{ ...activity, attempts }] : [];
  });
}
