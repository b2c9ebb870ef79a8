//go:build race

package executor_test

// raceEnabled: the binary is built with the race detector, as the tests are.
const raceEnabled = true
