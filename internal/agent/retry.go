package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// retry is how the agent waits for what it asks the runtime again after an error: hardly at first, then longer and longer.
func retry() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 32, Cap: 10 * time.Second}
}
