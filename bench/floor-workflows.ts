import { proxyActivities } from '@temporalio/workflow';

const { nothing } = proxyActivities<{ nothing: () => Promise<void> }>({ startToCloseTimeout: '1 minute' });

/** What Temporal alone costs: a workflow that does nothing, so many times. */
export async function floor(activities: number): Promise<void> {
  for (let i = 0; i < activities; i++) await nothing();
}
