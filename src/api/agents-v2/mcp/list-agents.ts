import { z } from 'zod';
import type { Catalog } from '../../../catalog/catalog.ts';
import { catalogName } from '../wire/names.ts';

const MAX_DESCRIPTION = 200;

export const listedAgents = z.object({
  agents: z.array(
    z.object({ name: z.string(), description: z.string().describe('the beginning of its instructions') }),
  ),
  next: z.string().nullable().describe('the value of `after` that continues the list; null: it is complete'),
});

/** A page of the registered agents, by name. */
export async function listAgents(
  { agents }: Pick<Catalog, 'agents'>,
  { after, limit }: { after?: string | undefined; limit: number },
): Promise<z.infer<typeof listedAgents>> {
  const rows = await agents.list('asc', after, limit + 1);
  const page = rows.slice(0, limit);
  // Other names are those of the Sessions API alone.
  const runnable = page.filter(({ name }) => catalogName.safeParse(name).success);
  return {
    agents: await Promise.all(
      runnable.map(async ({ name, spec_hash: hash }) => {
        const { instructions } = await agents.spec(hash);
        return { name, description: (instructions ?? '').slice(0, MAX_DESCRIPTION).toWellFormed() };
      }),
    ),
    next: rows.length > limit ? (page.at(-1)?.name ?? null) : null,
  };
}
