package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"monopod.dev/monopod/internal/apiserver/encryption"
	"monopod.dev/monopod/internal/apiserver/store"
)

// encryptAnew stores all objects anew that are to be encrypted and were stored under another configuration: unencrypted, or with an older key. It is done when
// it has been done for all, once for each configuration. What cannot be stored anew is named, and holds up nothing else.
func encryptAnew(ctx context.Context, all *store.Store, as *encryption.Encryption, log *slog.Logger) error {
	if as.Applied() {
		return nil
	}
	seen := 0
	var failed []error
	for _, resource := range all.Resources() {
		if !as.Encrypts(resource) {
			continue
		}
		n, err := all.Anew(ctx, resource)
		if err != nil {
			failed = append(failed, fmt.Errorf("store %s anew: %w", resource, err))
		}
		seen += n
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if err := as.Apply(); err != nil {
		return err
	}
	log.Info("all objects are encrypted with the first provider", "configuration", as.File(), "objects", seen)
	return nil
}
