package apiserver

import (
	"context"
	"errors"
	"fmt"
)

// encryptAnew stores all objects anew that are to be encrypted and were stored under another configuration: unencrypted, or with an older key. It is done when
// it has been done for all, once for each configuration. What cannot be stored anew is named, and holds up nothing else.
func (s *Server) encryptAnew(ctx context.Context) error {
	if s.encryption.Applied() {
		return nil
	}
	seen := 0
	var failed []error
	for _, resource := range s.store.Resources() {
		if !s.encryption.Encrypts(resource) {
			continue
		}
		n, err := s.store.Anew(ctx, resource)
		if err != nil {
			failed = append(failed, fmt.Errorf("store %s anew: %w", resource, err))
		}
		seen += n
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if err := s.encryption.Apply(); err != nil {
		return err
	}
	s.cfg.Log.Info("all objects are encrypted with the first provider", "configuration", s.encryption.File(), "objects", seen)
	return nil
}
