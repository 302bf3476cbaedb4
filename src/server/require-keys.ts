import type { Logger } from 'pino';
import type { Keyring } from '../auth/api-keys.ts';
import { Catalog } from '../features/catalog.ts';
import { ConfigError, isLoopback, type Config } from '../config.ts';

/**
 * Ensures that a server which other hosts can reach requires a key. Runs before the other steps, which may take
 * minutes.
 * @throws ConfigError if the server would be reachable without a key
 */
export async function requireKeysIfExposed(config: Config, log: Logger): Promise<void> {
  const { host, apiKeys, oidc } = config;
  if (isLoopback(host) || apiKeys.length > 0 || oidc) return;
  await using catalog = await Catalog.open(config.database, log);
  if (await catalog.keys.any()) return;
  throw new ConfigError(
    `EVERTURN_HOST is ${host}, which other hosts can reach, but there are no API keys: create one with ` +
      '`everturn keys create <name>`, set EVERTURN_API_KEYS=<name>=<key>,... or EVERTURN_OIDC_ISSUER, or listen on 127.0.0.1',
  );
}

/** The variable of clients is easily taken for the setting, and a server that seems to have a key has none. */
export function warnOfClientKey({
  config,
  keyring,
  log,
}: {
  config: Pick<Config, 'hasClientKey'>;
  keyring: Pick<Keyring, 'isKeyless'>;
  log: Pick<Logger, 'warn'>;
}): void {
  if (!config.hasClientKey || !keyring.isKeyless) return;
  log.warn(
    'EVERTURN_API_KEY is for clients, and this server requires no key: set EVERTURN_API_KEYS=<name>=<key>,... to require keys',
  );
}
