/** Without the digits that only come from adding fractions in binary: a token costs a multiple of 10^-12 USD. */
export function dollars(amount: number): number {
  return Number(amount.toFixed(12));
}
