import type { Redis } from '../lib/redis.ts';
import { withTimeout } from '../lib/timeout.ts';
import { localAllowance, type Allowance } from './allowance.ts';
import type { ProviderLimits } from './provider-file.ts';

/** The slot of a call whose worker was lost is free again after this time. */
const LEASE_MS = 30_000;
const RENEWAL_MS = 10_000;

/**
 * Takes a call's share, by Redis's clock. KEYS: the slots of running calls, by the end of their leases; the buckets.
 * ARGV: the call, its tokens, the three limits (0 for none), and the lease. Returns the milliseconds to wait, 0 if taken.
 */
const TAKE = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local concurrency = tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if concurrency > 0 and redis.call('ZCARD', KEYS[1]) >= concurrency then return 250 end
local at = tonumber(redis.call('HGET', KEYS[2], 'at') or now)
local amounts = { requests = 1, tokens = tonumber(ARGV[2]) }
local limits = { requests = tonumber(ARGV[4]), tokens = tonumber(ARGV[5]) }
local levels, wait = {}, 0
for name, limit in pairs(limits) do
  if limit > 0 then
    local level = tonumber(redis.call('HGET', KEYS[2], name) or limit)
    levels[name] = math.min(limit, level + math.max(0, now - at) * limit / 60000)
    local missing = math.min(amounts[name], limit) - levels[name]
    if missing > 0 then wait = math.max(wait, math.ceil(missing * 60000 / limit)) end
  end
end
for name, level in pairs(levels) do
  if wait == 0 then level = level - amounts[name] end
  redis.call('HSET', KEYS[2], name, tostring(level))
end
redis.call('HSET', KEYS[2], 'at', now)
redis.call('PEXPIRE', KEYS[2], 120000)
if wait == 0 then
  redis.call('ZADD', KEYS[1], now + ARGV[6], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
return wait
`;

/** Extends the lease of a running call. */
const RENEW = `
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
`;

/** ARGV: the call, and what it returns of its tokens and requests. */
const GIVE_BACK = `
redis.call('ZREM', KEYS[1], ARGV[1])
for i, name in ipairs({ 'tokens', 'requests' }) do
  if redis.call('HEXISTS', KEYS[2], name) == 1 then redis.call('HINCRBYFLOAT', KEYS[2], name, ARGV[i + 1]) end
end
`;

/** A call does not wait longer for Redis, unless another time is set. */
const RESPONSE_TIMEOUT_MS = 1_000;

interface RedisAllowanceOptions {
  redis: Redis;
  /** The prefix of the keys: one for each provider of each Everturn on this Redis. */
  prefix: string;
  limits: ProviderLimits;
  /** How long a call waits for Redis before it observes the limits of its worker alone. */
  responseTimeoutMs?: number;
}

/**
 * The limits of the calls of all workers. While Redis is unavailable each worker observes them alone. Which worker gets
 * the next share is left to chance.
 */
export function redisAllowance({
  redis,
  prefix,
  limits,
  responseTimeoutMs = RESPONSE_TIMEOUT_MS,
}: RedisAllowanceOptions): Allowance {
  const local = localAllowance(limits);
  const renewals = new Map<string, NodeJS.Timeout>();
  const { concurrency, requestsPerMinute, tokensPerMinute } = limits;
  const sentLimits = [concurrency, requestsPerMinute, tokensPerMinute].map((one) => (one === Infinity ? 0 : one));
  const keys = [`${prefix}running`, `${prefix}rates`];
  /** Undefined if Redis is unavailable. */
  const run = async (script: string, args: (string | number)[]): Promise<unknown> => {
    try {
      return await withTimeout(responseTimeoutMs, redis.commands.eval(script, { keys, arguments: args.map(String) }));
    } catch {
      return undefined;
    }
  };
  return {
    take: async (call) => {
      const localWait = await local.take(call);
      if (localWait > 0) return localWait;
      const reply = await run(TAKE, [call.id, call.tokens, ...sentLimits, LEASE_MS]);
      const wait = typeof reply === 'number' ? reply : 0;
      if (wait > 0) await local.giveBack(call);
      else renewals.set(call.id, setInterval(() => void run(RENEW, [call.id, LEASE_MS]), RENEWAL_MS).unref());
      return wait;
    },
    giveBack: async (call, used) => {
      clearInterval(renewals.get(call.id));
      renewals.delete(call.id);
      await local.giveBack(call, used);
      await run(GIVE_BACK, [call.id, call.tokens - (used ?? 0), used === undefined ? 1 : 0]);
    },
  };
}
