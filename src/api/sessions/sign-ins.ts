import type { Request, Response } from 'express';
import { z } from 'zod';
import { clientMetadataFor } from '../../mcp/authorization-server.ts';
import type { Grant } from '../../features/sign-in/grants.ts';
import { SignInError, SignInReplacedError, type SignInUrls } from '../../features/sign-in/sign-ins.ts';
import { notifySignIns } from '../../features/sign-in/notify-sign-ins.ts';
import { isId } from '../../core/ids.ts';
import type { Caller } from '../../core/subject.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError, toApiError } from '../http/errors.ts';
import { pageOf, pageOfRows, pageQuery, positionOf } from '../http/pagination.ts';
import { json, type Route } from '../http/route.ts';
import { routesOf } from './route.ts';
import { SESSION_ERRORS } from './errors.ts';
import { exampleConnection } from './examples.ts';
import { browserOf, formToken, keepAddress, sendEnd, sendOffer, sendText } from './sign-in-pages.ts';
import { connectionResource, type ConnectionResource } from './wire/resources.ts';

const route = routesOf('MCP sign-in');

const AUTHORIZE = '/v1/agents/mcp/authorize';
const CALLBACK = '/v1/agents/mcp/callback';
const CLIENT_METADATA = '/v1/agents/mcp/client-metadata';

/** The addresses of a server whose users reach it at `publicUrl`. */
export function signInUrls(publicUrl: string | undefined): SignInUrls | undefined {
  if (publicUrl === undefined) return undefined;
  return {
    authorize: (state) => `${publicUrl}${AUTHORIZE}?state=${state}`,
    redirectUri: `${publicUrl}${CALLBACK}`,
    clientMetadata: `${publicUrl}${CLIENT_METADATA}`,
  };
}

const MAX_STATE_LENGTH = 100;
const state = z.string().min(1).max(MAX_STATE_LENGTH).describe('identifies the sign-in');
const authorizeQuery = z.object({ state });
const confirmation = z.strictObject({
  token: z.string().max(MAX_STATE_LENGTH),
  decision: z.enum(['continue', 'decline']),
});
const callbackQuery = z.object({
  state,
  code: z.string().max(4_000).optional(),
  iss: z.string().max(2_000).optional().describe('RFC 9207'),
  error: z.string().max(200).optional(),
});

const LIMIT = 25;
const connectionsQuery = pageQuery({ defaultLimit: LIMIT, maxLimit: 100 });
const connectionPosition = z.object({ connection: z.string() });

const page = { written: { 'text/html': { schema: z.string(), example: '<!doctype html>' } } };

type SignInContext = Pick<ApiContext, 'signIns' | 'toolPool' | 'catalog' | 'client' | 'log'>;

/** `/v1/agents/mcp`: the sign-ins of users to MCP servers (docs/mcp-servers.md, "Sign-in"). */
export function signInRoutes({ signIns, toolPool, catalog, client, log }: SignInContext): Route[] {
  const isSecure = () => signIns.urls?.redirectUri.startsWith('https:') === true;
  const notifyTurns = async (): Promise<void> => {
    await notifySignIns({ catalog, client, log }).catch((error: unknown) =>
      log.warn({ err: error }, 'failed to notify turns of sign-ins; housekeeping retries'),
    );
  };
  return [
    route('get', AUTHORIZE, {
      id: 'authorizeMcpServer',
      summary: 'Read on a page what a sign-in is for, and confirm it: the `auth_url` of `mcp.auth_required`',
      description: 'A key is not needed; one of another subject than the session is rejected.',
      query: authorizeQuery,
      response: page,
      errors: ['sign_in_not_found'],
      handler: ({ query, caller, request, response }) =>
        toBrowser(request, response, async () => {
          const offer = await signIns.offer(query.state, subjectOf(caller));
          sendOffer({ request, response, isSecure: isSecure() }, query.state, offer);
        }),
    }),
    route('post', AUTHORIZE, {
      id: 'confirmMcpSignIn',
      summary: 'Go to the authorization server of an MCP server, or decline',
      description:
        'The form of the page. To continue redirects (303), and binds the link to the browser. Only a browser that has ' +
        'opened the page is accepted. In a second browser the link ends, and a turn that waits gets a new one.',
      query: authorizeQuery,
      body: json(confirmation, {
        token: 'f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2',
        decision: 'continue',
      }),
      isForm: true,
      response: page,
      errors: ['sign_in_not_found', 'sign_in_failed'],
      handler: ({ query, body: { token, decision }, caller, request, response }) =>
        toBrowser(request, response, async () => {
          const browser = browserOf(request, isSecure());
          if (browser === undefined || token !== formToken(browser, query.state)) {
            throw new SignInError(
              'sign_in_failed',
              'this browser has not opened the link: open it, with cookies allowed',
            );
          }
          const subject = subjectOf(caller);
          try {
            if (decision === 'continue') {
              const url = await signIns.begin(query.state, subject, browser);
              keepAddress(response).redirect(303, url);
            } else {
              const ended = await signIns.decline(query.state, subject, browser);
              await notifyTurns();
              sendEnd(response, ended);
            }
          } catch (error) {
            if (error instanceof SignInReplacedError) await notifyTurns();
            throw error;
          }
        }),
    }),
    route('get', CALLBACK, {
      id: 'completeMcpSignIn',
      summary: 'Come back from the authorization server, and read on a page what to do next',
      description: 'Only the browser that has confirmed the sign-in is accepted.',
      query: callbackQuery,
      response: page,
      errors: ['sign_in_not_found', 'sign_in_failed'],
      handler: ({ query, caller, request, response }) =>
        toBrowser(request, response, async () => {
          const browser = browserOf(request, isSecure());
          const ended = await signIns.finish(query, subjectOf(caller), browser);
          await notifyTurns();
          sendEnd(response, ended);
        }),
    }),
    route('get', CLIENT_METADATA, {
      id: 'getMcpClientMetadata',
      summary: 'Describe this server to authorization servers (OAuth client id metadata document)',
      response: json(z.looseObject({ client_id: z.string(), redirect_uris: z.array(z.string()) }), {
        client_id: `https://everturn.example.com${CLIENT_METADATA}`,
        redirect_uris: [`https://everturn.example.com${CALLBACK}`],
      }),
      errors: ['not_found'],
      handler: () => {
        const { urls } = signIns;
        if (!urls) throw new ApiError('not_found', 'EVERTURN_PUBLIC_URL is not set');
        const { clientMetadata, redirectUri } = urls;
        return { client_id: clientMetadata, ...clientMetadataFor(redirectUri), token_endpoint_auth_method: 'none' };
      },
    }),
    route('get', '/v1/agents/mcp/connections', {
      id: 'listMcpConnections',
      summary: 'The MCP servers that the caller is signed in to, oldest first',
      query: connectionsQuery,
      response: pageOf(connectionResource, [exampleConnection], LIMIT),
      handler: async ({ caller, query: { limit, page_token: token } }) => {
        const { connection = '' } = positionOf(connectionPosition, token) ?? {};
        return pageOfRows(await signIns.connections(caller.subject.subjectId, connection, limit + 1), limit, {
          toItem: toResource,
          after: ({ id }) => ({ connection: id }),
        });
      },
    }),
    route('delete', '/v1/agents/mcp/connections/:connection_id', {
      id: 'deleteMcpConnection',
      summary: 'Sign out of an MCP server',
      description: 'Also revokes the tokens at the authorization server, if it can.',
      handler: async ({ caller, params: { connection_id: id } }) => {
        if (!isId(id) || !(await signIns.revoke(caller.subject.subjectId, id))) {
          throw new ApiError(SESSION_ERRORS.connection_not_found, `you have no connection ${JSON.stringify(id)}`);
        }
        toolPool.endGrant(id);
      },
    }),
  ];
}

/** The subject of a caller; a browser has none. */
function subjectOf(caller: Caller | undefined): string | undefined {
  return caller?.subject.subjectId;
}

function toResource({ id, server, account, target, tokens, created_at }: Grant): ConnectionResource {
  const scope = tokens.scope ?? target.scope;
  return {
    id,
    mcp_server: { id: server.id, name: server.name, url: server.url },
    account: account ?? null,
    issuer: target.server.issuer,
    scopes: scope === undefined ? [] : scope.split(' '),
    created_at,
  };
}

/** Shows an error as a page to a browser, and as JSON to all other clients. */
async function toBrowser(request: Request, response: Response, handle: () => Promise<void>): Promise<void> {
  try {
    await handle();
  } catch (error) {
    if (!(error instanceof SignInError) || request.accepts(['json', 'html']) !== 'html') throw error;
    const { status } = toApiError(error).kind;
    sendText(response.status(status), 'You are not signed in', `${error.message}.`);
  }
}
