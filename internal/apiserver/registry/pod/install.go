package pod

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme adds to a scheme that knows core/v1 all that serving pods needs: defaults, the fields that can be
// selected by, and the options of the subresources.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(AddDefaults(scheme), AddFieldLabelConversion(scheme), AddOptions(scheme))
}
