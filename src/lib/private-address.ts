import { isIP, isIPv6 } from 'node:net';
import { Networks } from './networks.ts';

/**
 * IPv4 ranges that a client must not reach through the server: the IANA special-purpose registries (RFC 6890),
 * multicast, and public addresses that belong to a cloud's own services. Other metadata services are in these ranges
 * too, such as 169.254.169.254, 100.100.100.200 (Alibaba), 192.0.0.192 (Oracle), fd00:ec2::254 (AWS).
 */
const IPV4 = [
  '0.0.0.0/8', // this network
  '10.0.0.0/8',
  '100.64.0.0/10', // carrier-grade NAT
  '127.0.0.0/8',
  '168.63.129.16/32', // Azure's wire server, which gives out a machine's configuration and certificates
  '169.254.0.0/16', // link-local: cloud metadata
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
];

/**
 * The only IPv6 ranges on the public internet. All others are private, link-local, multicast or unallocated, and
 * unallocated ranges are used by overlay networks.
 */
const PUBLIC_IPV6 = [
  '2000::/3', // global unicast
  '::ffff:0:0/96', // mapped IPv4
  '64:ff9b::/96', // NAT64 (RFC 6052): networks that use it give every public IPv4 host such an address
];

/** Special-purpose ranges within global unicast. */
const IPV6 = [
  '2001::/23', // Teredo and other protocol assignments
  '2001:db8::/32',
  '2002::/16', // 6to4, which carries an IPv4 address
  '3fff::/20',
];

const special = new Networks([...IPV4, ...IPV4.map((range) => embedded('64:ff9b::', range)), ...IPV6]);
const publicIpv6 = new Networks(PUBLIC_IPV6);

/** Embeds an IPv4 range in IPv6 after a prefix of 96 bits. */
function embedded(prefix: string, range: string): string {
  const [net = '', bits = ''] = range.split('/');
  return `${prefix}${net}/${96 + Number(bits)}`;
}

/**
 * Whether an IP address is not on the public internet: private, loopback, link-local, shared (CGNAT), multicast,
 * unspecified or reserved, also if IPv6 maps or embeds such an IPv4 address. Anything that is not an IP address counts
 * as private.
 */
export function isPrivateAddress(address: string): boolean {
  const [withoutZone = ''] = address.split('%');
  if (isIP(withoutZone) === 0) return true;
  return special.has(withoutZone) || (isIPv6(withoutZone) && !publicIpv6.has(withoutZone));
}
