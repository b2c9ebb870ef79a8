package node

import (
	"slices"
	"testing"

	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/controllers"
)

func TestTheConfigurationNamesTheControllers(t *testing.T) {
	if !slices.Equal(config.Controllers(), controllers.Names()) {
		t.Errorf("the configuration has %v, the role %v", config.Controllers(), controllers.Names())
	}
}
