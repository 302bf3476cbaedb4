import type { ModelServer } from '../catalog/model-servers.ts';
import { networkCause } from './network-cause.ts';

/** What to check if a connection fails with these codes. */
const CHECKS = new Map([
  ['ECONNREFUSED', 'that the server is running'],
  ['ENOTFOUND', 'the name of the host'],
]);

const CHECK_CERTIFICATE = 'the certificate of the server (NODE_EXTRA_CA_CERTS adds a private CA)';

/** The codes of OpenSSL's checks, as Node.js names them. */
const CERTIFICATE_CODE =
  /CERT|^UNABLE_TO_(?:GET|VERIFY)_|^ERR_TLS_CERT_ALTNAME_INVALID$|^HOSTNAME_MISMATCH$|^INVALID_CA$/;

/**
 * What to check if a model cannot be reached for a reason that rarely passes by itself: its server refuses connections,
 * has no name, or shows a wrong certificate. Undefined for other errors.
 */
export function whatToCheck(error: unknown): string | undefined {
  const { code = '' } = networkCause(error);
  const check = CHECKS.get(code) ?? (CERTIFICATE_CODE.test(code) ? CHECK_CERTIFICATE : undefined);
  if (check === undefined) return undefined;
  return `check ${check}, and the address, which is its base_url in EVERTURN_MODEL_PROVIDERS or OPENAI_BASE_URL`;
}

/** The same for a server that has never responded to this installation. */
export function wrongAddress(error: unknown, server: ModelServer): string | undefined {
  const advice = whatToCheck(error);
  if (advice === undefined) return undefined;
  const place = addressOf(server) ?? networkCause(error).address ?? 'its own address';
  return `The provider ${server.providerName} has never answered at ${place}: ${advice}.`;
}

/** The host and port of a server, without what else its URL may have, such as a password; undefined for the provider's own. */
export function addressOf({ baseUrl }: Pick<ModelServer, 'baseUrl'>): string | undefined {
  if (baseUrl === undefined) return undefined;
  const { protocol, hostname, port } = new URL(baseUrl);
  return `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`;
}
