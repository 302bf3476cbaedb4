/** The last label begins with a letter, so that no spelling of an IP address is such a name. */
const NAME = String.raw`(?:\w(?:[\w-]{0,61}\w)?\.)*[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`;

/** A name of a host, or `*.` before one for all names below it. */
export const HOST_PATTERN = new RegExp(String.raw`^(?:\*\.)?${NAME}$`);

const HOST_NAME = new RegExp(`^${NAME}$`);

/** A name of the DNS, without the root, has at most so many characters. */
export const MAX_HOST_LENGTH = 253;

export const HOST_PATTERN_RULE = 'must be a host name such as pypi.org, or *.example.com for all names below it';

/** A host name as it is compared; undefined for what is none, such as an IP address. */
export function hostName(given: string): string | undefined {
  const name = given.toLowerCase().replace(/\.$/, '');
  return name.length <= MAX_HOST_LENGTH && HOST_NAME.test(name) ? name : undefined;
}

/** Whether all hosts of a name or pattern are among those of a pattern. Both are in lower case. */
export function isWithin(host: string, pattern: string): boolean {
  return host === pattern || (pattern.startsWith('*.') && host.endsWith(pattern.slice(1)));
}

/** The hosts that agents may reach at most. */
export type NetworkMaximum = 'any' | readonly string[];

export function isWithinMaximum(host: string, maximum: NetworkMaximum): boolean {
  return maximum === 'any' || maximum.some((pattern) => isWithin(host, pattern));
}
