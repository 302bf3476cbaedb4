import { BlockList, isIP, isIPv6 } from 'node:net';

/** What an outsider must not reach through us, by the IANA special-purpose registries (RFC 6890) plus multicast. */
const IPV4 = [
  '0.0.0.0/8', // this network
  '10.0.0.0/8',
  '100.64.0.0/10', // carrier-grade NAT
  '127.0.0.0/8',
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

const IPV6 = [
  '::/96', // unspecified, loopback, IPv4-compatible
  '::ffff:0:0:0/96', // IPv4-translated (RFC 2765), which carries an IPv4 address
  '64:ff9b:1::/48', // NAT64 for local use
  '100::/64',
  '2001::/23', // Teredo and other protocol assignments
  '2001:db8::/32',
  '2002::/16', // 6to4, which carries an IPv4 address
  '3fff::/20',
  '5f00::/16',
  'fc00::/7', // unique local
  'fe80::/10', // link-local
  'fec0::/10', // site-local
  'ff00::/8', // multicast
];

const blocked = new BlockList();
for (const range of IPV4) {
  const [net = '', prefix = ''] = range.split('/');
  blocked.addSubnet(net, Number(prefix), 'ipv4');
  // NAT64 (RFC 6052) leads to IPv4. Where it is in use every public host has such an address, so they are not all blocked.
  blocked.addSubnet(`64:ff9b::${net}`, 96 + Number(prefix), 'ipv6');
}
for (const range of IPV6) {
  const [net = '', prefix = ''] = range.split('/');
  blocked.addSubnet(net, Number(prefix), 'ipv6');
}

/**
 * Whether an IP address is not on the public internet: private, loopback, link-local, shared (CGNAT), multicast,
 * unspecified or reserved, also where IPv6 maps or embeds such an IPv4 address. Anything but an IP address is private.
 */
export function isPrivateAddress(address: string): boolean {
  const [withoutZone = ''] = address.split('%');
  if (isIP(withoutZone) === 0) return true;
  return blocked.check(withoutZone, isIPv6(withoutZone) ? 'ipv6' : 'ipv4');
}
