import { delimiter } from 'node:path';

/**
 * The variables of Everturn that a program gets: those of any program, and those that determine how the network is
 * reached and where packages are. It does not get any others, above all no keys.
 */
const INHERITED = [
  // Any program
  'HOME|LANG|LC_\\w+|LOGNAME|PATH|SHELL|TERM|TEMP|TMP|TMPDIR|TZ|USER',
  // Proxies and certificates
  '(https?|all|no)_proxy',
  'NODE_EXTRA_CA_CERTS|NODE_USE_ENV_PROXY|NODE_USE_SYSTEM_CA',
  'SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO',
  // npm: the others are settings of the npm that has started Everturn, such as the folders of its installation
  'npm_config_(registry|.+:registry|ca|cafile|strict_ssl|proxy|https?_proxy|noproxy|cache|userconfig|offline)',
  'npm_config_(prefer_offline|fetch_\\w+|maxsockets|replace_registry_host)',
  // pip and uv
  'PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|TRUSTED_HOST|CERT|PROXY|CACHE_DIR|CONFIG_FILE)',
  'PIP_(DEFAULT_TIMEOUT|RETRIES)',
  'UV_(INDEX|INDEX_URL|DEFAULT_INDEX|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|INSECURE_HOST|NATIVE_TLS|SYSTEM_CERTS)',
  'UV_(CACHE_DIR|CONFIG_FILE|HTTP_TIMEOUT|OFFLINE|PYTHON_INSTALL_MIRROR)',
];

const IS_INHERITED = new RegExp(`^(?:${INHERITED.join('|')})$`, 'i');

/** The environment of an MCP server's program, without the `env` of its registration. */
export function programEnv(env: NodeJS.ProcessEnv): Record<string, string> {
  const inherited = Object.entries(env).flatMap(([name, value]): [string, string][] =>
    value !== undefined && IS_INHERITED.test(name) ? [[name, name === 'PATH' ? withoutNpm(value) : value]] : [],
  );
  return Object.fromEntries(inherited);
}

/** The last folder that `npm run` and `npx` put in front of PATH, after those of programs that packages bring. */
const NODE_GYP = /[\\/]node-gyp-bin$/;

/**
 * The PATH of the user. Otherwise `npx` would be that of Everturn's installation, with its Node and its settings, and a
 * program could be one of Everturn's dependencies.
 */
function withoutNpm(path: string): string {
  const folders = path.split(delimiter);
  const last = folders.findLastIndex((folder) => NODE_GYP.test(folder));
  return folders.slice(last + 1).join(delimiter);
}
