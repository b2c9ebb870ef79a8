//go:build cgo

package calls

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/executor/protocol"
	"monopod.dev/monopod/internal/executor/worker/record"
	"monopod.dev/monopod/internal/kit/ids"
)

// checkLog checks what a Create asks of the log.
func checkLog(req protocol.CreateRequest) error {
	const leastFiles = 2 // the one that is written, and the one before
	switch {
	case req.LogMaxBytes == 0 && req.LogMaxFiles == 0:
		return nil
	case req.LogMaxBytes <= 0 || req.LogMaxFiles < leastFiles:
		return fmt.Errorf("%w: container %s: logMaxBytes %d and logMaxFiles %d: want a size, and at least %d files", errdefs.ErrInvalidArgument,
			req.ID, req.LogMaxBytes, req.LogMaxFiles, leastFiles)
	case req.LogPath == "":
		return fmt.Errorf("%w: container %s: a log without a path cannot be rotated", errdefs.ErrInvalidArgument, req.ID)
	}
	return nil
}

// reopenLog serves ReopenLog. A container that has exited, and is drained, gets no new file. After any error there is no
// new file until another ReopenLog succeeds, whoever of this worker and its successors might want to make one.
func (cs *Calls) reopenLog(id ids.ContainerID) error {
	c, err := cs.cfg.Table.Existing(id)
	if err != nil {
		return err
	}
	io, rec := c.Stdio(), c.Record()
	switch {
	case rec.Exit != nil || io == nil:
		if io != nil { // something still writes to it
			io.FixLog()
		}
		err = fmt.Errorf("%w: container %s has exited; its log is complete", errdefs.ErrFailedPrecondition, id)
	default:
		err = io.Reopen()
	}
	if failed := err != nil; failed != rec.LogFixed {
		err = errors.Join(err, cs.cfg.Table.Change(c, func(r *record.Record) { r.LogFixed = failed }))
	}
	return err
}
