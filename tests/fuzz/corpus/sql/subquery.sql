select a from t where x in (select `y` from u where case when b and c then 1 end = 1 and d <> 2) and z != "It's" union select O'Brien
