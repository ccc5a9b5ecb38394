// Answers queries over samples: reads {"series": [{"labels": {}, "points": [[seconds, value]]}],
// "start": s, "end": s, "step": s, "queries": ["..."]} on standard input and writes, for each query,
// [{"labels": {}, "points": [[seconds, value]]}].
package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

type series struct {
	Labels map[string]string `json:"labels"`
	Points [][2]float64      `json:"points"`
}

type question struct {
	Series           []series `json:"series"`
	Start, End, Step float64
	Queries          []string `json:"queries"`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	var asked question
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	folder, err := os.MkdirTemp("", "eval")
	must(err)
	defer os.RemoveAll(folder)
	db, err := tsdb.Open(folder, nil, nil, tsdb.DefaultOptions(), nil)
	must(err)
	defer db.Close()
	app := db.Appender(context.Background())
	for _, one := range asked.Series {
		for _, p := range one.Points {
			_, err := app.Append(0, labels.FromMap(one.Labels), int64(p[0]*1000), p[1])
			must(err)
		}
	}
	must(app.Commit())
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50000000, Timeout: time.Minute})
	at := func(s float64) time.Time { return time.UnixMilli(int64(s * 1000)) }
	var told [][]series
	for _, text := range asked.Queries {
		query, err := engine.NewRangeQuery(context.Background(), db, nil, text, at(asked.Start), at(asked.End),
			time.Duration(asked.Step*float64(time.Second)))
		must(err)
		answer := query.Exec(context.Background())
		must(answer.Err)
		matrix, err := answer.Matrix()
		must(err)
		found := []series{}
		for _, one := range matrix {
			points := [][2]float64{}
			for _, p := range one.Floats {
				if !math.IsNaN(p.F) && !math.IsInf(p.F, 0) {
					points = append(points, [2]float64{float64(p.T) / 1000, p.F})
				}
			}
			found = append(found, series{one.Metric.Map(), points})
		}
		told = append(told, found)
		query.Close()
	}
	must(json.NewEncoder(os.Stdout).Encode(told))
}
