import { SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/client';

/** The version since which servers have no handshake; the SDK does not export it. */
export const MODERN_PROTOCOL = '2026-07-28';

/** The versions of the protocol that Everturn speaks, the newest first. */
export const PROTOCOLS: readonly string[] = [MODERN_PROTOCOL, ...SUPPORTED_PROTOCOL_VERSIONS];
