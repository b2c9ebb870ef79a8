package registry_test

import (
	"strings"
	"testing"

	"monopod.dev/monopod/internal/apiserver/registry/cronjob"
	"monopod.dev/monopod/internal/apiserver/registry/job"
)

// jobOf is a job with more in its specification, and in that of its pods.
func jobOf(spec, pod string) string {
	return "spec: {" + spec + " template: {spec: {restartPolicy: Never, " + pod + " containers: [{name: c, image: i}]}}}"
}

// cronOf is a cron job with more in its specification, and in that of its jobs.
func cronOf(spec, jobSpec string) string {
	return "spec: {" + spec + " jobTemplate: {" + jobOf(jobSpec, "") + "}}"
}

func TestRulesOfBatch(t *testing.T) {
	j, cron := rulesOf(job.Resource()), rulesOf(cronjob.Resource())
	plain, suspended := jobOf("", ""), jobOf("suspend: true,", "")
	const perIndex = "completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1,"
	failure := func(rule string) string { return jobOf("podFailurePolicy: {rules: ["+rule+"]},", "") }
	success := func(rules string) string {
		return jobOf("completionMode: Indexed, completions: 5, successPolicy: {rules: ["+rules+"]},", "")
	}
	many := func(n int, one string) string { return strings.Repeat(one+",", n) }
	for name, tc := range map[string]ruleCase{
		"job":                        {j, plain, "", ""},
		"of everything":              {j, jobOf(perIndex+"parallelism: 2, backoffLimit: 0, maxFailedIndexes: 2, activeDeadlineSeconds: 9, ttlSecondsAfterFinished: 0, managedBy: a.b/c,", ""), "", ""},
		"parallelism below zero":     {j, jobOf("parallelism: -1,", ""), "", "spec.parallelism: Invalid value"},
		"a deadline below zero":      {j, jobOf("activeDeadlineSeconds: -1,", ""), "", "spec.activeDeadlineSeconds: Invalid value"},
		"pods that never end":        {j, "spec: {template: {spec: {containers: [{name: c, image: i}]}}}", "", `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		"no such restart policy":     {j, "spec: {template: {spec: {restartPolicy: Some, containers: [{name: c, image: i}]}}}", "", `spec.template.spec.restartPolicy: Unsupported value: "Some"`},
		"a template":                 {j, "spec: {template: {spec: {restartPolicy: Never}}}", "", "spec.template.spec.containers: Required value"},
		"group of pods":              {j, jobOf("scheduling: {schedulingPolicy: {gang: {minCount: 2}}},", ""), "", "spec.scheduling: Forbidden: not supported by Monopod yet"},
		"manager without domain":     {j, jobOf("managedBy: me,", ""), "", "spec.managedBy: Invalid value"},
		"completion mode":            {j, jobOf("completionMode: Some,", ""), "", `spec.completionMode: Unsupported value: "Some"`},
		"indexed without end":        {j, jobOf("completionMode: Indexed, parallelism: 1,", ""), "", "spec.completions: Required value"},
		"indexed, too many at once":  {j, jobOf("completionMode: Indexed, completions: 1, parallelism: 100001,", ""), "", "spec.parallelism: Invalid value"},
		"indexed, long name":         {j, "metadata: {name: " + strings.Repeat("a", 61) + "}\n" + jobOf("completionMode: Indexed, completions: 11,", ""), "", "metadata.name: Invalid value"},
		"failed indexes over all":    {j, jobOf(perIndex+"maxFailedIndexes: 6,", ""), "", "spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to 5"},
		"failed indexes, no limit":   {j, jobOf("completionMode: Indexed, completions: 5, maxFailedIndexes: 2,", ""), "", "spec.backoffLimitPerIndex: Required value"},
		"very many indexes":          {j, jobOf("completionMode: Indexed, completions: 100001, backoffLimitPerIndex: 1,", ""), "", "spec.maxFailedIndexes: Required value"},
		"very many, many at once":    {j, jobOf("completionMode: Indexed, completions: 100001, backoffLimitPerIndex: 1, maxFailedIndexes: 1, parallelism: 10001,", ""), "", "spec.parallelism: Invalid value"},
		"per index without indexes":  {j, jobOf("backoffLimitPerIndex: 1,", ""), "", "spec.backoffLimitPerIndex: Invalid value"},
		"success without indexes":    {j, jobOf("successPolicy: {rules: [{succeededCount: 1}]},", ""), "", "spec.successPolicy: Invalid value"},
		"replacement":                {j, jobOf("podReplacementPolicy: Some,", ""), "", `spec.podReplacementPolicy: Unsupported value: "Some"`},
		"replacement, too early":     {j, jobOf("podReplacementPolicy: TerminatingOrFailed, podFailurePolicy: {rules: []},", ""), "", "spec.podReplacementPolicy: Unsupported value"},
		"selector of one's own":      {j, "spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", "", ""},
		"selector that is missing":   {j, jobOf("manualSelector: true,", ""), "", "spec.selector: Required value"},
		"selector of other pods":     {j, "spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", "", "spec.template.metadata.labels: Invalid value"},
		"a label that is the job's":  {j, "spec: {template: {metadata: {labels: {job-name: other}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", "", `spec.template.metadata.labels[job-name]: Invalid value: "other": must be x`},
		"a UID that is the job's":    {j, "spec: {template: {metadata: {labels: {controller-uid: other}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", "", `spec.template.metadata.labels[controller-uid]: Invalid value: "other": must be u`},
		"rule of codes":              {j, failure("{action: FailJob, onExitCodes: {containerName: c, operator: In, values: [1, 42]}}"), "", ""},
		"rule of conditions":         {j, failure("{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}"), "", ""},
		"rule of an index":           {j, jobOf(perIndex+"podFailurePolicy: {rules: [{action: FailIndex, onPodConditions: [{type: DisruptionTarget}]}]},", ""), "", ""},
		"rule of no index":           {j, failure("{action: FailIndex, onPodConditions: [{type: DisruptionTarget}]}"), "", "spec.podFailurePolicy.rules[0].action: Invalid value"},
		"rule of nothing":            {j, failure("{action: Count}"), "", "spec.podFailurePolicy.rules[0]: Invalid value"},
		"rule of both":               {j, failure("{action: Count, onExitCodes: {operator: In, values: [1]}, onPodConditions: [{type: A}]}"), "", "spec.podFailurePolicy.rules[0]: Invalid value"},
		"rule without action":        {j, failure("{onPodConditions: [{type: A}]}"), "", "spec.podFailurePolicy.rules[0].action: Required value"},
		"rule, action":               {j, failure("{action: Some, onPodConditions: [{type: A}]}"), "", "spec.podFailurePolicy.rules[0].action: Unsupported value"},
		"rule, status":               {j, failure("{action: Count, onPodConditions: [{type: A, status: Some}]}"), "", "spec.podFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value"},
		"rule, type":                 {j, failure("{action: Count, onPodConditions: [{type: a b}]}"), "", "spec.podFailurePolicy.rules[0].onPodConditions[0].type: Invalid value"},
		"rule, operator":             {j, failure("{action: Count, onExitCodes: {operator: Some, values: [1]}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value"},
		"rule, container":            {j, failure("{action: Count, onExitCodes: {containerName: d, operator: In, values: [1]}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value"},
		"rule of no code":            {j, failure("{action: Count, onExitCodes: {operator: In, values: []}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value"},
		"rule of success":            {j, failure("{action: Count, onExitCodes: {operator: In, values: [0]}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value"},
		"rule of all but success":    {j, failure("{action: Count, onExitCodes: {operator: NotIn, values: [0]}}"), "", ""},
		"rule, codes twice":          {j, failure("{action: Count, onExitCodes: {operator: In, values: [1, 1]}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Duplicate value"},
		"rule, codes in disorder":    {j, failure("{action: Count, onExitCodes: {operator: In, values: [2, 1]}}"), "", "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value"},
		"too many rules":             {j, failure(many(21, "{action: Count, onPodConditions: [{type: A}]}")), "", "spec.podFailurePolicy.rules: Too many"},
		"rules, pods start again":    {j, "spec: {podFailurePolicy: {rules: []}, template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: i}]}}}", "", `spec.template.spec.restartPolicy: Invalid value: "OnFailure"`},
		"success of some":            {j, success("{succeededIndexes: '0,2-4', succeededCount: 4}, {succeededCount: 1}"), "", ""},
		"success of no rule":         {j, success(""), "", "spec.successPolicy.rules: Required value"},
		"success of nothing":         {j, success("{}"), "", "spec.successPolicy.rules[0]: Required value"},
		"success of too many rules":  {j, success(many(21, "{succeededCount: 1}")), "", "spec.successPolicy.rules: Too many"},
		"success of more than all":   {j, success("{succeededCount: 6}"), "", "spec.successPolicy.rules[0].succeededCount: Invalid value"},
		"success of more than named": {j, success("{succeededIndexes: 0-1, succeededCount: 3}"), "", "spec.successPolicy.rules[0].succeededCount: Invalid value"},
		"success of no index":        {j, success("{succeededIndexes: '5'}"), "", "spec.successPolicy.rules[0].succeededIndexes: Invalid value"},
		"success in disorder":        {j, success("{succeededIndexes: '2,1'}"), "", "spec.successPolicy.rules[0].succeededIndexes: Invalid value"},

		"labels, limits and suspension change": {j, jobOf("parallelism: 3, completions: 1, backoffLimit: 9, suspend: true, activeDeadlineSeconds: 3, ttlSecondsAfterFinished: 1,", ""), plain, ""},
		"completions change":                   {j, jobOf("completions: 2, parallelism: 1,", ""), plain, "spec.completions: Invalid value"},
		"indexed, completions change":          {j, jobOf("completionMode: Indexed, completions: 3, parallelism: 3,", ""), jobOf("completionMode: Indexed, completions: 2, parallelism: 2,", ""), ""},
		"indexed, completions alone":           {j, jobOf("completionMode: Indexed, completions: 3, parallelism: 2,", ""), jobOf("completionMode: Indexed, completions: 2, parallelism: 2,", ""), "spec.completions: Invalid value"},
		"the mode changes":                     {j, jobOf("completionMode: Indexed, completions: 1, parallelism: 1,", ""), plain, "spec.completionMode: Invalid value"},
		"the failure policy changes":           {j, failure(""), failure("{action: Count, onPodConditions: [{type: A}]}"), "spec.podFailurePolicy: Invalid value"},
		"the success policy changes":           {j, success("{succeededCount: 1}"), success("{succeededCount: 2}"), "spec.successPolicy: Invalid value"},
		"the manager changes":                  {j, jobOf("managedBy: a.b/c,", ""), plain, "spec.managedBy: Invalid value"},
		"the limit an index changes":           {j, jobOf("completionMode: Indexed, completions: 5, backoffLimitPerIndex: 2, backoffLimit: 3,", ""), jobOf(perIndex, ""), "spec.backoffLimitPerIndex: Invalid value"},
		"the pods change":                      {j, jobOf("", "hostname: h,"), plain, "spec.template: Invalid value"},
		"the place changes":                    {j, jobOf("", "nodeSelector: {a: b},"), plain, "spec.template: Invalid value"},
		"the place of none changes": {j, jobOf("suspend: false,", "nodeSelector: {a: b}, tolerations: [{key: a}], schedulingGates: [{name: a}], "+
			"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}},"), suspended, ""},
		"resources of none change":    {j, "spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}", suspended, ""},
		"the image of none changes":   {j, "spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: k}]}}}", suspended, "spec.template.spec: Invalid value"},
		"the neighbours of none":      {j, jobOf("suspend: true,", "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}}]}},"), suspended, "spec.template.spec: Invalid value"},
		"resources of running change": {j, "spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}", "{" + suspended + ", status: {active: 1}}", "spec.template: Invalid value"},

		"cron job":                   {cron, cronOf("schedule: '*/5 * * * *', timeZone: Europe/Berlin, startingDeadlineSeconds: 9, concurrencyPolicy: Forbid,", ""), "", ""},
		"cron job of an interval":    {cron, cronOf("schedule: '@every 1h30m',", ""), "", ""},
		"cron job without schedule":  {cron, cronOf("", ""), "", "spec.schedule: Required value"},
		"cron job, schedule":         {cron, cronOf("schedule: '* * * *',", ""), "", "spec.schedule: Invalid value"},
		"cron job, minute 60":        {cron, cronOf("schedule: '60 * * * *',", ""), "", "spec.schedule: Invalid value"},
		"cron job, zone in schedule": {cron, cronOf("schedule: 'CRON_TZ=UTC 0 * * * *',", ""), "", "spec.schedule: Invalid value"},
		"cron job, a zone alone":     {cron, cronOf("schedule: 'TZ=UTC',", ""), cronOf("schedule: 'TZ=0 0 * * * *',", ""), "spec.schedule: Invalid value"},
		"cron job, a zone of old":    {cron, cronOf("schedule: 'TZ=UTC 0 * * * *',", ""), cronOf("schedule: 'TZ=UTC 1 * * * *',", ""), ""},
		"cron job, two zones":        {cron, cronOf("schedule: 'TZ=UTC 0 * * * *', timeZone: UTC,", ""), cronOf("schedule: 'TZ=UTC 1 * * * *',", ""), "spec.schedule: Invalid value"},
		"cron job, no such zone":     {cron, cronOf("schedule: '0 * * * *', timeZone: Europe/Atlantis,", ""), "", "spec.timeZone: Invalid value"},
		"cron job, no zone":          {cron, cronOf("schedule: '0 * * * *', timeZone: '',", ""), "", "spec.timeZone: Invalid value"},
		"cron job, zone of the host": {cron, cronOf("schedule: '0 * * * *', timeZone: local,", ""), "", "spec.timeZone: Invalid value"},
		"cron job, zone of a path":   {cron, cronOf("schedule: '0 * * * *', timeZone: Europe/../UTC,", ""), "", "spec.timeZone: Invalid value"},
		"cron job, zone as it was":   {cron, cronOf("schedule: '1 * * * *', timeZone: Old/Zone,", ""), cronOf("schedule: '0 * * * *', timeZone: Old/Zone,", ""), ""},
		"cron job, policy":           {cron, cronOf("schedule: '0 * * * *', concurrencyPolicy: Some,", ""), "", "spec.concurrencyPolicy: Unsupported value"},
		"cron job, deadline":         {cron, cronOf("schedule: '0 * * * *', startingDeadlineSeconds: -1,", ""), "", "spec.startingDeadlineSeconds: Invalid value"},
		"cron job, history":          {cron, cronOf("schedule: '0 * * * *', failedJobsHistoryLimit: -1,", ""), "", "spec.failedJobsHistoryLimit: Invalid value"},
		"cron job, name":             {cron, "metadata: {name: " + strings.Repeat("a", 53) + "}\n" + cronOf("schedule: '0 * * * *',", ""), "", "metadata.name: Invalid value"},
		"cron job, old name":         {cron, "metadata: {name: " + strings.Repeat("a", 53) + "}\n" + cronOf("schedule: '0 * * * *',", ""), "metadata: {name: " + strings.Repeat("a", 53) + "}\n" + cronOf("schedule: '0 * * * *',", ""), ""},
		"cron job, selector":         {cron, cronOf("schedule: '0 * * * *',", "selector: {matchLabels: {a: b}},"), "", "spec.jobTemplate.spec.selector: Invalid value"},
		"cron job, manual selector":  {cron, cronOf("schedule: '0 * * * *',", "manualSelector: true,"), "", "spec.jobTemplate.spec.manualSelector: Unsupported value"},
		"cron job, job":              {cron, cronOf("schedule: '0 * * * *',", "backoffLimit: -1,"), "", "spec.jobTemplate.spec.backoffLimit: Invalid value"},
		"cron job, group of pods":    {cron, cronOf("schedule: '0 * * * *',", "scheduling: {},"), "", "spec.jobTemplate.spec.scheduling: Forbidden"},
		"cron job, template":         {cron, "spec: {schedule: '0 * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never}}}}}", "", "spec.jobTemplate.spec.template.spec.containers: Required value"},
		"cron job changes":           {cron, cronOf("schedule: '1 * * * *', suspend: true,", "completionMode: Indexed, completions: 3,"), cronOf("schedule: '0 * * * *',", ""), ""},
	} {
		t.Run(name, tc.check)
	}
}
