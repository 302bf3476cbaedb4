import type { SessionRow } from '../../catalog/schema.ts';
import { runIdsOf } from '../../features/run-support/runs.ts';
import type { RunHeader } from './wire/run.ts';

/** The fields of a run that do not depend on its log. */
export function toRunHeader({ id, agent_name, agent_version, created_at, metadata }: SessionRow): RunHeader {
  return {
    id: runIdsOf(id).runId,
    object: 'run',
    agent_name: agent_name ?? '',
    ...(agent_version !== null && { agent_version }),
    created_at,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `startRun`
    metadata: JSON.parse(metadata ?? '{}') as RunHeader['metadata'],
  };
}
