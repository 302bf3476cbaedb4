import { proxyActivities } from '@temporalio/workflow';

const { nothing } = proxyActivities<{ nothing: () => Promise<void> }>({ startToCloseTimeout: '1 minute' });

/** Measures Temporal alone: executes an activity that does nothing, `activities` times. */
export async function baseline(activities: number): Promise<void> {
  for (let i = 0; i < activities; i++) await nothing();
}
