package node

import (
	"context"
	"path/filepath"

	"monopod.dev/monopod/internal/network/bridge"
	"monopod.dev/monopod/internal/network/choice"
	"monopod.dev/monopod/internal/network/cni"
)

// newNetwork opens the two ways of connecting pods, of which the configured mode chooses one.
func (o *Options) newNetwork(ctx context.Context, bridge bridge.Config) (*choice.Network, error) {
	c := o.Config
	return choice.New(ctx, choice.Config{Mode: c.Network.Mode, Bridge: bridge, Log: bridge.Log, CNI: cni.Config{
		DB: bridge.DB, ConfDir: c.Network.CNI.ConfDir, BinDirs: c.Network.CNI.BinDirs, CacheDir: filepath.Join(c.RunDir, "cni"), Log: bridge.Log,
	}})
}
