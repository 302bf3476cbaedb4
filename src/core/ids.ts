/** Ids are lowercase ULIDs behind a prefix that names what they identify. */
export type IdPrefix =
  | 'ses'
  | 'turn'
  | 'thr'
  | 'evt'
  | 'msg'
  | 'call'
  | 'req'
  | 'key'
  | 'con'
  | 'whk'
  | 'dlv'
  | 'run'
  | 'code'
  | 'rule'
  | 'tool'
  | 'sbx';

/** Crockford base32, lower case: the ULID alphabet. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';
/** Values of one letter of an id. */
export const DIGITS = ALPHABET.length;
const TIME_LENGTH = 10;
const RANDOM_LENGTH = 16;

/**
 * An id that sorts by `now` (milliseconds since 1970) and then at random: `digit` returns integers from 0 below
 * `DIGITS`. It has no default, since workflows have no cryptographic source of randomness: `src/engine/new-id.ts` uses
 * the system's, and workflows use `Math.random`, which a replay repeats.
 */
export function ulid(prefix: IdPrefix, now: number, digit: () => number): string {
  const random = Array.from({ length: RANDOM_LENGTH }, () => ALPHABET.charAt(digit()));
  return `${prefix}_${lettersOf(BigInt(now), TIME_LENGTH)}${random.join('')}`;
}

/**
 * The id of a turn's event at `ordinal`: the turn's ULID with the ordinal added to its random part. It is not stored,
 * since every reader of the log derives the same one.
 */
export function eventId(turnId: string, ordinal: number): string {
  return derivedId('evt', turnId, ordinal);
}

/**
 * The id of the result of a call that runs in the sandbox. It does not derive from a position: readers are shown the
 * output of the call before its result has one. A call that a fork leaves to two turns has a result with an id in each.
 */
export function resultId(turnId: string, { messageId, index }: { messageId: string; index: number }): string {
  return derivedId('evt', turnId, randomOf(messageId) + BigInt(index));
}

/** The id of the sub-agent's thread that the call at `index` of a message starts, for all attempts and replays. */
export function threadIdOf(messageId: string, index: number): string {
  return derivedId('thr', messageId, index);
}

/** The id of the message that stands for a record of a turn that is lost. */
export function lostMessageId(turnId: string, ordinal: number): string {
  return derivedId('msg', turnId, ordinal);
}

/** The id with the ULID of another one, and `offset` added to its random part. */
function derivedId(prefix: IdPrefix, id: string, offset: number | bigint): string {
  const random = lettersOf(randomOf(id) + BigInt(offset), RANDOM_LENGTH);
  return `${prefix}_${ulidIn(id).slice(0, TIME_LENGTH)}${random}`;
}

/** The random part of an id. */
function randomOf(id: string): bigint {
  return numberOf(ulidIn(id).slice(TIME_LENGTH));
}

/** The ULID of an id, with which derived ids begin. */
export function ulidIn(id: string): string {
  return id.slice(id.indexOf('_') + 1);
}

/** The id of the message with which a turn begins: the turn's ULID. */
export function firstMessageId(turnId: string): string {
  return `msg_${ulidIn(turnId)}`;
}

/** When an id was minted: milliseconds since 1970. */
export function timeOf(id: string): number {
  return Number(numberOf(ulidIn(id).slice(0, TIME_LENGTH)));
}

/** The number that letters of a ULID encode. @throws RangeError if a letter is not in its alphabet */
export function numberOf(letters: string): bigint {
  let sum = 0n;
  for (const letter of letters) {
    const digit = ALPHABET.indexOf(letter);
    if (digit < 0) throw new RangeError(`${letters} is not part of a ULID`);
    sum = sum * 32n + BigInt(digit);
  }
  return sum;
}

/** The letters of the ULID that encodes a number of 128 bits: the reverse of `numberOf`. */
export function ulidOf(number: bigint): string {
  return lettersOf(number, TIME_LENGTH + RANDOM_LENGTH);
}

/** The last so many letters that encode a number. */
function lettersOf(number: bigint, length: number): string {
  let letters = '';
  for (let rest = number; letters.length < length; rest /= 32n) letters = ALPHABET.charAt(Number(rest % 32n)) + letters;
  return letters;
}

/** Whether a text can be an id. Other texts are not looked up: neither SQL nor Temporal accepts every text. */
export function isId(text: string): boolean {
  return /^[\w-]{1,128}$/.test(text);
}

/**
 * The ids that clients can send back, and that any provider of a later message accepts: OpenAI rejects ids of more than
 * 64 characters, while some gateways use whole signatures as ids.
 */
export const USABLE_ID = /^[\x21-\x7e]{1,64}$/;
