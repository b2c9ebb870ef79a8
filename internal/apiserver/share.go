package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"monopod.dev/monopod/internal/apiserver/etcd"
)

// join connects to an etcd that runs by itself, when the certificates are there. Who has another authority than those who share it would read secrets that
// it cannot decrypt, and take none of their tokens: it is refused.
func (s *Server) join(ctx context.Context, certificates <-chan error) error {
	s.cfg.Etcd.Log = s.cfg.Log
	e, err := etcd.Connect(ctx, s.cfg.Etcd)
	if err == nil {
		s.etcd = e
	}
	if err := errors.Join(<-certificates, err); err != nil {
		return err
	}
	authority := sha256.Sum256(s.pki.CA)
	if err := e.Claim(ctx, hex.EncodeToString(authority[:])); errors.Is(err, etcd.ErrOthers) {
		return fmt.Errorf("etcd at %s: %w; those who share it have one certificate authority and the same keys: stop, and copy ca.crt, ca.key, sa-* and encryption.yaml "+
			"from the pki directory of one of them to %s", strings.Join(s.cfg.Etcd.Servers, ","), err, s.keys())
	} else if err != nil {
		return err
	}
	s.serviceLock = func(ctx context.Context) (func(), error) { return e.Exclusively(ctx, "services") }
	return nil
}

// KeepOwn keeps the service kubernetes, with its endpoints, leading to this API server, from when it is ready until ctx ends, as long as may says yes. Of those
// who share a store one at a time does: whoever has the controllers.
func (s *Server) KeepOwn(ctx context.Context, may func() bool) error {
	if await(ctx, s.ready) {
		s.own().Run(ctx, may)
	}
	return nil
}

// Shared: other API servers may have the store, too, and Run does not keep the service kubernetes (KeepOwn).
func (s *Server) Shared() bool { return s.cfg.shared() }
