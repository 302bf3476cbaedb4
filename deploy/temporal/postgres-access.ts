import { ProvisionError } from '../../src/lib/errors.ts';

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
  const { hostname, port, searchParams, ...access } = parse(url);
  if (!hostname || !access.user) throw new ProvisionError('the URL of PostgreSQL must name a host and a user');
  // Temporal encodes the password into a URL in a way that its driver decodes differently.
  if (access.password.includes(' ')) throw new ProvisionError('Temporal cannot use a password that contains a space');
  const mode = searchParams.get('sslmode') ?? 'disable';
  const isEncrypted = ['require', 'verify-ca', 'verify-full'].includes(mode);
  const tls = { verify: mode !== 'require', caFile: searchParams.get('sslrootcert') ?? undefined };
  return { ...access, host: hostname, port: Number(port || 5432), tls: isEncrypted ? tls : undefined };
}

/** Parses the URL. Node's own error for an invalid URL would contain it, and so the password. */
function parse(url: string): Pick<URL, 'hostname' | 'port' | 'searchParams'> & { user: string; password: string } {
  try {
    const { hostname, port, searchParams, username, password } = new URL(url);
    return { hostname, port, searchParams, user: decodeURIComponent(username), password: decodeURIComponent(password) };
  } catch {
    throw new ProvisionError(
      'the URL of PostgreSQL must be postgresql://<user>:<password>@<host>:<port>/postgres, with the password ' +
        'percent-encoded: %40 for @, %2F for /',
    );
  }
}
