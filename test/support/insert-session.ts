import type { Catalog } from '../../src/features/catalog.ts';
import type { SessionRow } from '../../src/catalog/schema.ts';

/** Inserts a session of the subject `ann`, with an agent of its own. */
export async function insertSession(
  catalog: Catalog,
  { id, at, type = 'session/draft' }: { id: string; at: string; type?: SessionRow['type'] },
): Promise<void> {
  await catalog.sessions.insert({
    id,
    type,
    agent_name: null,
    agent_version: null,
    spec_hash: await catalog.agents.putSpec({ model: { name: 'm' } }, at),
    title: null,
    subject_id: 'ann',
    subject_type: 'user',
    subject_slug: 'ann',
    metadata: null,
    created_at: at,
    updated_at: at,
  });
}
