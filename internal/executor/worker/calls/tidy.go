//go:build cgo

package calls

import (
	"runtime/debug"
	"time"
)

// quiet is how long nobody may have asked for anything before memory is given back.
const quiet = time.Second

// tidier gives back what the garbage collector would keep, when the work is done: so it may be lazy while there is some, and the process
// small when there is none.
type tidier struct{ timer *time.Timer }

func newTidier() tidier { return tidier{time.AfterFunc(quiet, debug.FreeOSMemory)} }

// worked is called after each piece of work.
func (t tidier) worked() { t.timer.Reset(quiet) }

func (t tidier) stop() { t.timer.Stop() }
