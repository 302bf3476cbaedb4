import { z } from 'zod';
import type { ApiContext } from '../http/context.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf, SHARE } from './route.ts';
import { authorizeOwner } from './access.ts';
import { fromUuid, toUuid } from './session-ids.ts';

const route = routesOf('Agent sessions');

export const shareLink = z
  .object({ share_url: z.string().describe('a path of this server') })
  .meta({ id: 'ShareLink' });

/** The path under which a shared session can be read. */
function shareUrl(sessionId: string): string {
  return `${SHARE}/${toUuid(sessionId)}`;
}

/** Shares a session, and returns where it can be read. @param session from `authorizeOwner` */
export async function shareSession({ catalog }: Pick<ApiContext, 'catalog'>, { id }: { id: string }): Promise<string> {
  await catalog.sharedSessions.add(id, new Date().toISOString());
  return shareUrl(id);
}

/** Shared sessions: everyone who has the link can read them. */
export function sharingRoutes(context: ApiContext): Route[] {
  const { catalog } = context;
  return [
    route('post', '/api/v2/sessions/:id/share', {
      id: 'shareSession',
      summary: 'Make a session readable without a key',
      description:
        'Only for its owner. The session, its `/status`, `/changes`, `/events` and `/resources` can then be read by ' +
        'everyone who has its id. The definition of its agent is not shown.',
      response: json(shareLink, { share_url: shareUrl('ses_01k6md978wfry8yqvbhg6wv2db') }),
      handler: async ({ params, caller }) => {
        return { share_url: await shareSession(context, await authorizeOwner(catalog, params.id, caller)) };
      },
    }),
    route('delete', '/api/v2/sessions/:id/share', {
      id: 'unshareSession',
      summary: 'Make a shared session private again',
      description: 'Only for its owner. Without effect on a session that is not shared.',
      handler: async ({ params, caller }) => {
        const { id } = await authorizeOwner(catalog, params.id, caller);
        await catalog.sharedSessions.remove(id);
      },
    }),
    route('get', `${SHARE}/:id`, {
      id: 'openSharedSession',
      summary: 'The session that a `share_url` leads to',
      status: 302,
      handler: ({ params, response }) => {
        // Relative, so that the prefix under which a proxy serves this server applies.
        response.location(`../../../../api/v2/sessions/${toUuid(fromUuid(params.id))}`);
      },
    }),
  ];
}
