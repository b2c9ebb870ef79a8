package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/manifests"
)

// manifestsDir is the directory whose objects are applied; "": none. One that is named must be there: a name that is mistyped would look like one that is empty.
func manifestsDir(o Options) (string, error) {
	dir := o.Config.ManifestsDir
	named := dir != ""
	if !named {
		if o.Ephemeral {
			return "", nil
		}
		dir = config.DefaultManifestsDir
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("manifestsDir: %w: make the directory, or name another one with --manifests", err)
	case !info.IsDir():
		return "", fmt.Errorf("manifestsDir: %s is no directory", dir)
	}
	return dir, nil
}

// manifests is the role that keeps what lies in a directory in the API, from when the API server is ready and settled is closed; nil: at once. Without a directory it does
// nothing.
func (p *process) manifests(api *apiRole, settled <-chan struct{}) (role, error) {
	dir, err := manifestsDir(p.Options)
	if dir == "" || err != nil {
		return role{name: "manifests"}, err
	}
	return role{name: "manifests", run: func(ctx context.Context) error {
		if !await(ctx, api.ready()) || settled != nil && !await(ctx, settled) {
			return nil
		}
		k, err := manifests.New(manifests.Config{Dir: dir, Kube: api.server.AdminConfig(), NodeName: p.Config.NodeName, Log: p.Log.With("role", "manifests")})
		if err != nil {
			return err
		}
		return k.Run(ctx)
	}}, nil
}
