import { ProvisionError } from '../../src/temporal/provision-error.ts';

/** How Temporal's programs reach PostgreSQL. */
export interface PostgresAccess {
  host: string;
  port: number;
  user: string;
  password: string;
  /** Unset: without TLS. */
  tls: { verify: boolean; caFile: string | undefined } | undefined;
}

/** Reads a URL as libpq does. @throws ProvisionError for what Temporal has no way to say. */
export function postgresAccess(url: string): PostgresAccess {
  const { hostname, port, username, password, searchParams } = new URL(url);
  const access = { user: decodeURIComponent(username), password: decodeURIComponent(password) };
  if (!hostname || !access.user) throw new ProvisionError('the URL of PostgreSQL must name a host and a user');
  // It writes the password into a URL in a way that its driver reads differently.
  if (access.password.includes(' ')) throw new ProvisionError('Temporal can not use a password that has a blank in it');
  const mode = searchParams.get('sslmode') ?? 'disable';
  const isEncrypted = ['require', 'verify-ca', 'verify-full'].includes(mode);
  const tls = { verify: mode !== 'require', caFile: searchParams.get('sslrootcert') ?? undefined };
  return { ...access, host: hostname, port: Number(port || 5432), tls: isEncrypted ? tls : undefined };
}
