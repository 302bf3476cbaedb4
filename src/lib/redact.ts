import { WordSearch } from './word-search.ts';

const HIDDEN = '[hidden]';

/** Shorter values would also match unrelated words. */
const MIN_SECRET_LENGTH = 8;

const CREDENTIAL = '(?:authorization|cookie|password|passwd|secret|signature|credential|api[_-]?key|auth|token)';
const CREDENTIAL_NAME = new RegExp(`${CREDENTIAL}|(?:^|[_-])(?:key|pat)$`, 'i');

/** Repetitions that can backtrack are bounded: otherwise a long line made for it would take hours. */
const PATTERNS: [RegExp, string][] = [
  // API keys, and tokens of OpenID Connect.
  [/\beverturn_[0-9a-f]{64}\b/g, HIDDEN],
  [/\beyJ[\w-]{8,500}\.[\w-]{8,}\.[\w-]*/g, HIDDEN],
  [/\b(bearer|basic) {1,9}[\w.~+/=-]{8,}/gi, `$1 ${HIDDEN}`],
  // In URLs: user and password, and parameters with the name of a credential. The placeholders in the messages that say
  // how a URL is written are kept.
  [/\b([a-z][a-z\d+.-]{0,20}:\/\/)(?!\[{0,2}<user>\]?:<password>@)[^\s/?#"'\\]{0,500}@/gi, `$1${HIDDEN}@`],
  [
    new RegExp(
      `([?&#](?!page_token=)(?:[\\w.-]{0,40}${CREDENTIAL}[\\w.-]{0,40}|key|sig|code|state)=)[^&#\\s"'\\\\<>]+`,
      'gi',
    ),
    `$1${HIDDEN}`,
  ],
  // In JSON, also in JSON that is a string in JSON.
  [
    new RegExp(`(\\\\{0,3}")([\\w.-]{0,40}${CREDENTIAL})\\1(\\s{0,9}:\\s{0,9})\\1(?:(?!\\1)(?:[^\\\\"]|\\\\.))*`, 'gi'),
    `$1$2$1$3$1${HIDDEN}`,
  ],
];

const secrets = new Set<string>();
let registered = new WordSearch(secrets);

/** Adds keys, passwords or values of headers that `redact` hides from now on. */
export function registerSecrets(values: (string | undefined)[]): void {
  for (const form of values.flatMap(formsOf)) secrets.add(form);
  registered = new WordSearch(secrets);
}

/** A function that hides secrets in a text. The author of the text may have chosen the secrets, too. */
export function hiding(values: string[]): (text: string) => string {
  const search = new WordSearch(values.flatMap(formsOf));
  return (text) => search.replace(text, HIDDEN);
}

/** A secret as it may occur in a text; none if it is too short. */
function formsOf(secret: string | undefined): string[] {
  // In `Bearer …` the second word alone is a secret, too.
  const values = secret === undefined ? [] : [secret, secret.replace(/^\w+ +/, '')];
  return values.flatMap((value) => {
    if (value.length < MIN_SECRET_LENGTH) return [];
    // Also as escaped in JSON, and in JSON that is a string in JSON.
    const inJson = JSON.stringify(value).slice(1, -1);
    return [value, inJson, JSON.stringify(inJson).slice(1, -1), encodeURIComponent(value)];
  });
}

/** The values of the variables that have the name of a credential. */
export function credentialsIn(named: Record<string, string>): string[] {
  return Object.entries(named).flatMap(([name, value]) => (CREDENTIAL_NAME.test(name) ? [value] : []));
}

/** Hides the registered secrets in a text, and everything that looks like a credential. */
export function redact(text: string): string {
  let shown = registered.replace(text, HIDDEN);
  for (const [pattern, replacement] of PATTERNS) shown = shown.replace(pattern, replacement);
  return shown;
}
