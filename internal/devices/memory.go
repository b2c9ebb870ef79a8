package devices

import (
	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/plugin"
	"monopod.dev/monopod/internal/state"
)

// pluginMemory is the table that remembers which resources are device plugins'. It has one record.
type pluginMemory struct {
	table state.Table[pluginRecord]
}

// pluginRecord names the resources that were plugins' last, sorted.
type pluginRecord struct {
	Resources []string `json:"resources"`
}

const (
	pluginTable = "devicePlugins"
	pluginKey   = "resources"
)

var _ plugin.Memory = pluginMemory{}

func newPluginMemory(db *state.DB) pluginMemory {
	return pluginMemory{state.NewTable[pluginRecord](db, pluginTable)}
}

// Plugins implements plugin.Memory.
func (p pluginMemory) Plugins() ([]string, error) {
	rec, err := p.table.Get(pluginKey)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return rec.Resources, err
}

// Remember implements plugin.Memory.
func (p pluginMemory) Remember(resources []string) error {
	return p.table.Put(pluginKey, pluginRecord{resources})
}
