import type { Generated, Insertable, Selectable } from 'kysely';
import type { Tables } from '../../catalog/schema.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sign-ins to MCP servers that turns have requested. */
    mcp_sign_ins: {
      /** SHA-256 of the `state` in the link to the sign-in. */
      id: string;
      turn_id: string;
      subject_id: string;
      /** Names the server: see `serverKey`. */
      server: string;
      status: SignInStatus;
      /** JSON, encrypted: what `SignIns` keeps. */
      data: string;
      /** How often the user was sent to the authorization server. */
      redirects: Generated<number>;
      /** The grant whose access is not enough for what the turn does; null if there was none. */
      replaces: string | null;
      /** Whether the turn knows that it has ended. */
      told: Generated<number>;
      created_at: string;
      expires_at: string;
      /** When it was granted, declined or replaced. */
      ended_at: Generated<string | null>;
    };
    /** The access of subjects to MCP servers. */
    mcp_grants: {
      id: string;
      subject_id: string;
      /** As in `mcp_sign_ins`. */
      server: string;
      /** JSON, encrypted: the server, and how its tokens are refreshed and revoked. */
      data: string;
      /** JSON, encrypted. */
      tokens: string;
      /** Counts the changes of `tokens`. */
      version: number;
      /** Until when one process may refresh the tokens; null if none does. */
      refreshing_until: string | null;
      created_at: string;
    };
  }
}

/**
 * - `requested`: the user has not come back from the authorization server.
 * - `exchanging`: the code is being exchanged for tokens. A code is used once, so a crash leaves this status, and the
 *   user begins again.
 * - `replaced`: its link was used in a second browser, or too often. A turn that waits requests another one.
 */
export type SignInStatus = 'requested' | 'exchanging' | 'granted' | 'declined' | 'replaced';

export type SignInRow = Selectable<Tables['mcp_sign_ins']>;
export type NewSignInRow = Insertable<Tables['mcp_sign_ins']>;
export type GrantRow = Selectable<Tables['mcp_grants']>;
