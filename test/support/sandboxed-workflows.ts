import { proxyActivities } from '@temporalio/workflow';
import { TurnCommands } from '../../workflows/turn-commands.ts';
import type { TurnScope } from '../../workflows/turn-scope.ts';

const { step } = proxyActivities<{ step: () => Promise<void> }>({ startToCloseTimeout: '1 minute' });

/** More than the SDK and a turn take from the result of an activity to the last thing that follows from it. */
const MICROTASKS = 100;

/** A turn that notes in which order it sees what its task brings: the result of its activity, and commands. */
export async function order(): Promise<string[]> {
  const seen: string[] = [];
  const actions = {
    isPaused: false,
    isHeld: false,
    nextDue: undefined,
    mustRecord: () => false,
    isUnsettled: () => false,
  };
  const taskEnded: TurnScope['taskEnded'] = (_, commands) => {
    seen.push(...commands.map(({ type }) => type));
    return [];
  };
  const commands = new TurnCommands({
    start: { turnId: 'turn_1', sessionId: 'ses_1' },
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- all that `TurnCommands` uses
    scope: { actions, ordinal: 0, taskEnded } as unknown as TurnScope,
    onGrowth: () => undefined,
  });
  await step();
  for (let i = 0; i < MICROTASKS; i++) await Promise.resolve();
  seen.push('result');
  await commands.settled();
  return seen;
}
