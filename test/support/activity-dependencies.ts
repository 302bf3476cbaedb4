import type { Dependencies } from '../../activities/dependencies.ts';
import { modelCallParts } from '../../src/features/features.ts';
import { StepsAhead } from '../../src/features/speculation/steps-ahead.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';

/** The dependencies that all activities need, for an agent that has only a model, and `more`. */
export function activityDependencies(more: object): Dependencies {
  const given = {
    catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm' } }) } },
    config: { model: { retrySeconds: 60 }, tool: { timeoutSeconds: 60 } },
    draining: new AbortController().signal,
    bus: new InProcessBus(),
    metrics: new Metrics(),
    blobs: { put: () => Promise.resolve('f'.repeat(64)) },
    budgets: { metered: ({ provider }: { provider: unknown }) => provider },
    skills: { list: () => Promise.resolve({ skills: [], unavailable: [] }) },
    log: { error: () => undefined },
    ...more,
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a test gives what else is asked for
  const parts = modelCallParts(given as unknown as Parameters<typeof modelCallParts>[0]);
  const sources = { modelCallParts: parts, ...given };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a test gives what else is asked for
  const stepsAhead = new StepsAhead(sources as unknown as ConstructorParameters<typeof StepsAhead>[0]);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a test gives what else its activity asks for
  return { stepsAhead, ...sources } as unknown as Dependencies;
}
