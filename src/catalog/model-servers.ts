import { sha256 } from '../lib/hash.ts';
import { Store } from './store.ts';

/** A model provider at an address. */
export interface ModelServer {
  providerName: string;
  /** Undefined for the provider's own. */
  baseUrl?: string | undefined;
}

/** The model servers that have ever responded to this installation. URLs are hashed: they may have passwords. */
export class ModelServers extends Store {
  async record(server: ModelServer, at: string): Promise<void> {
    await this.db
      .insertInto('model_servers')
      .values({ ...keyOf(server), answered_at: at })
      .onConflict((conflict) => conflict.columns(['provider', 'url_hash']).doNothing())
      .execute();
  }

  async hasResponded(server: ModelServer): Promise<boolean> {
    const { provider, url_hash: hash } = keyOf(server);
    const row = await this.db
      .selectFrom('model_servers')
      .select('answered_at')
      .where('provider', '=', provider)
      .where('url_hash', '=', hash)
      .executeTakeFirst();
    return row !== undefined;
  }
}

function keyOf({ providerName, baseUrl = '' }: ModelServer): { provider: string; url_hash: string } {
  return { provider: providerName, url_hash: sha256(baseUrl) };
}
