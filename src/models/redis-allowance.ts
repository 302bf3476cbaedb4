import type { Redis } from '../lib/redis.ts';
import { withTimeout } from '../lib/timeout.ts';
import { LocalAllowance, type AllowedCall, type Allowance } from './allowance.ts';
import type { ProviderLimits } from './provider-file.ts';

/** The place of a call whose worker was lost is free again after this time. */
const LEASE_MS = 30_000;
const RENEWAL_MS = 10_000;

/**
 * Takes a call's share, by Redis's clock. KEYS: the places of running calls, by the end of their leases; the buckets.
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

/** A call does not wait longer for Redis. */
const ANSWER_MS = 1_000;

interface RedisAllowanceOptions {
  redis: Redis;
  /** The prefix of the keys: one for each provider of each Everturn on this Redis. */
  prefix: string;
  limits: ProviderLimits;
}

/**
 * The limits of the calls of all workers. While Redis is unavailable each worker observes them alone. Which worker is
 * next is left to chance.
 */
export class RedisAllowance implements Allowance {
  readonly #redis: Redis;
  readonly #keys: string[];
  readonly #limits: ProviderLimits;
  readonly #local: Allowance;
  readonly #renewals = new Map<string, NodeJS.Timeout>();

  constructor({ redis, prefix, limits }: RedisAllowanceOptions) {
    this.#redis = redis;
    this.#keys = [`${prefix}running`, `${prefix}rates`];
    this.#limits = limits;
    this.#local = new LocalAllowance(limits);
  }

  async take(call: AllowedCall): Promise<number> {
    const localWait = await this.#local.take(call);
    if (localWait > 0) return localWait;
    const { concurrency, requestsPerMinute, tokensPerMinute } = this.#limits;
    const limits = [concurrency, requestsPerMinute, tokensPerMinute].map((limit) => (limit === Infinity ? 0 : limit));
    const answer = await this.#eval(TAKE, [call.id, call.tokens, ...limits, LEASE_MS]);
    const wait = typeof answer === 'number' ? answer : 0;
    if (wait > 0) await this.#local.giveBack(call);
    else
      this.#renewals.set(call.id, setInterval(() => void this.#eval(RENEW, [call.id, LEASE_MS]), RENEWAL_MS).unref());
    return wait;
  }

  async giveBack(call: AllowedCall, used?: number): Promise<void> {
    clearInterval(this.#renewals.get(call.id));
    this.#renewals.delete(call.id);
    await this.#local.giveBack(call, used);
    await this.#eval(GIVE_BACK, [call.id, call.tokens - (used ?? 0), used === undefined ? 1 : 0]);
  }

  /** Undefined if Redis is unavailable. */
  async #eval(script: string, args: (string | number)[]): Promise<unknown> {
    try {
      const answer = this.#redis.commands.eval(script, { keys: this.#keys, arguments: args.map(String) });
      return await withTimeout(ANSWER_MS, answer);
    } catch {
      return undefined;
    }
  }
}
