// Package randomid makes the identifiers of sandboxes and containers.
package randomid

import (
	"crypto/rand"
	"encoding/hex"
)

// Length is that of an identifier; what is shorter is the beginning of one, which people type and crictl passes on.
const Length = 64

// New returns 64 random hexadecimal digits, the form that CRI clients know from other runtimes.
func New() string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails (crypto/rand)
	return hex.EncodeToString(raw[:])
}
