// Package ledger holds Tranche's books and the words the whole program shares:
// amounts, accounts, entries, lots, holds, charges, requests, actors and refusals.
// It is pure: no clock, no chance, no input or output. Every rule about who may
// spend what is decided here and carried out by package store.
package ledger

// Amount counts ledger units: 1 unit is 1 milli-GPU-second at rate 1.000, so
// 1 GPU-hour is 3,600,000 units. Amounts are never floats.
type Amount int64

// GPUHour is one GPU-hour in units.
const GPUHour Amount = 3_600_000
