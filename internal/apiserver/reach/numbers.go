package reach

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// maxMetrics bounds an agent's answer: that of a node with 2,500 pods has less than three mebibytes.
const maxMetrics = 32 << 20

// ResourceMetrics reads what the agent of a node tells of what is used there (/metrics/resource). It goes to one path of the agent of that node and nowhere else,
// whoever it is read for.
func (a *Agents) ResourceMetrics(ctx context.Context, nodeName string) ([]byte, error) {
	agent, err := a.Agent(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	to := agent.at(nil, "metrics", "resource")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.location.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := to.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("agent of node %s: %w", nodeName, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent of node %s: %w", nodeName, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("agent of node %s: %s for /metrics/resource: %.200s", nodeName, resp.Status, text)
	case len(text) > maxMetrics:
		return nil, fmt.Errorf("agent of node %s: the metrics of resources have more than %d bytes", nodeName, maxMetrics)
	}
	return text, nil
}
