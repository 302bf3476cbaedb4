import { z } from 'zod';
import type { Fetch } from '../lib/guarded-fetch.ts';
import { parsedJson } from '../lib/json.ts';

/** Longer names are cut: they are shown, and stored with each connection of the server. */
const MAX_LENGTH = 200;

/** How providers name an account to people, most recognizable first. `account` and `workspace_name` are no claims of OIDC. */
const NAMES = ['preferred_username', 'email', 'username', 'login', 'account', 'name', 'workspace_name'] as const;

const claims = z.record(z.string(), z.unknown());
const tokenResponse = z.looseObject({ id_token: z.string().optional().catch(undefined) });

interface AccountSources {
  /** What the token endpoint sent. */
  response: unknown;
  /** Undefined if the tokens are not for it. */
  userinfo: { endpoint: string; accessToken: string } | undefined;
  fetch: Fetch;
}

/**
 * The name of the account for which tokens were issued, from the ID token, the userinfo endpoint or the response with
 * the tokens; undefined if none contains it. The name is shown to the user and decides nothing, so the signature of the
 * ID token, which came from the token endpoint itself, is not verified (OpenID Connect Core, section 3.1.3.7).
 */
export async function accountOf({ response, userinfo, fetch }: AccountSources): Promise<string | undefined> {
  const { data: beside } = tokenResponse.safeParse(response);
  const idToken = beside?.id_token === undefined ? undefined : claimsOf(beside.id_token);
  const name = nameIn(idToken);
  if (name !== undefined) return name;
  const user = userinfo && (await readUserinfo(userinfo, fetch));
  return nameIn(user) ?? nameIn(beside) ?? shown(idToken?.['sub']) ?? shown(user?.['sub']);
}

/** Undefined if the endpoint fails: the sign-in does not depend on it. */
async function readUserinfo(
  { endpoint, accessToken }: NonNullable<AccountSources['userinfo']>,
  fetch: Fetch,
): Promise<Record<string, unknown> | undefined> {
  try {
    // A redirect would send the token elsewhere.
    const headers = { authorization: `Bearer ${accessToken}`, accept: 'application/json' };
    const response = await fetch(endpoint, { redirect: 'error', headers });
    return response.ok ? claims.safeParse(await response.json()).data : undefined;
  } catch {
    return undefined;
  }
}

function claimsOf(jwt: string): Record<string, unknown> | undefined {
  return claims.safeParse(parsedJson(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString())).data;
}

function nameIn(found: Record<string, unknown> | undefined): string | undefined {
  return NAMES.map((name) => shown(found?.[name])).find((name) => name !== undefined);
}

/** Without control and format characters, which could make one name look like another. */
function shown(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  return (
    value
      .slice(0, MAX_LENGTH)
      .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '')
      .trim() || undefined
  );
}
