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
      /** Identifies the server: see `serverKey`. */
      server: string;
      status: SignInStatus;
      /** JSON, encrypted: the data of `SignIns`. */
      data: string;
      /** How often the user was sent to the authorization server. */
      redirects: Generated<number>;
      /** The grant whose access is insufficient for the turn; null if there was none. */
      replaces: string | null;
      /** 1: the turn was notified of the end. */
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
      /** The end of one process's reservation to refresh the tokens; null if there is none. */
      refreshing_until: string | null;
      created_at: string;
    };
  }
}

/**
 * - `requested`: the user has not returned from the authorization server.
 * - `exchanging`: the code is being exchanged for tokens. A code is used once, so a crash leaves this status, and the
 *   user has to begin again.
 * - `replaced`: its link was used in a second browser, or too often. A turn that waits requests another one.
 */
export type SignInStatus = 'requested' | 'exchanging' | 'granted' | 'declined' | 'replaced';

export type SignInRow = Selectable<Tables['mcp_sign_ins']>;
export type NewSignInRow = Insertable<Tables['mcp_sign_ins']>;
export type GrantRow = Selectable<Tables['mcp_grants']>;
