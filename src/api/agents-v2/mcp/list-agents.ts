import { z } from 'zod';
import type { Catalog } from '../../../features/catalog.ts';
import { readAgent } from '../registered-agents.ts';

const MAX_DESCRIPTION = 1_000;

export const listedAgents = z.object({
  agents: z.array(
    z.object({
      name: z.string(),
      description: z.string().describe('what it does; of an agent without a description, its instructions'),
    }),
  ),
  next: z.string().nullable().describe('the value of `after` that continues the list; null: it is complete'),
});

/** A page of the registered agents, by name. */
export async function listAgents(
  catalog: Catalog,
  { after, limit }: { after?: string | undefined; limit: number },
): Promise<z.infer<typeof listedAgents>> {
  const rows = await catalog.agents.list('asc', after, limit + 1);
  const page = rows.slice(0, limit);
  return {
    agents: await Promise.all(
      page.map(async ({ name }) => {
        const { description, instructions } = (await readAgent(catalog, name))?.definition ?? {};
        // oxlint-disable-next-line typescript/prefer-nullish-coalescing -- it may be empty
        const text = description || (instructions ?? '');
        return { name, description: text.slice(0, MAX_DESCRIPTION).toWellFormed() };
      }),
    ),
    next: rows.length > limit ? (page.at(-1)?.name ?? null) : null,
  };
}
